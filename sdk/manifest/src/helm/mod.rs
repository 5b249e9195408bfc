//! Templates of a Helm chart: generated manifests in which values of the chart choose and fill in.
//!
//! The manifests of an installation follow from its flags in code, so a template is not written a second time by hand. It
//! is made of the manifests themselves, generated once for each of its [`Modes`] (certificates from cert-manager or not,
//! one namespace or all…): what differs between modes stands behind a condition, and rendering the template in a mode gives
//! the manifests of that mode. What is no matter of modes, such as a number of replicas, is a [`Slot`] at its place in
//! the manifest. Names that users choose are [`Names`]: words that stand for them in manifests, and expressions in the
//! template.

mod lines;
mod merge;
mod modes;

pub use lines::{Names, Slot};
pub use merge::{Document, template};
pub use modes::{Axis, Choice, Mode, Modes};
