//! Templates of a Helm chart, made from generated manifests.
//!
//! The manifests of an installation follow from its flags in code, so templates are not written by hand. A template is
//! made from the manifests themselves, generated once for each of its [`Modes`] (certificates from cert-manager or not,
//! one namespace or all…): what differs between modes is put behind a condition, and rendering the template in a mode
//! gives the manifests of that mode. Settings that are independent of modes, such as the number of replicas, are a
//! [`Slot`] at their place in the manifest: [`document`], [`policy_document`], [`fill_operator`] and [`fill_hook`] make
//! those of an operator's chart. Names that users choose are [`Names`]: placeholders in the manifests, and
//! expressions in the template.

mod lines;
mod merge;
mod modes;
mod slots;

pub use lines::{Names, Slot};
pub use merge::{Document, template};
pub use modes::{Axis, Choice, Mode, Modes};
pub use slots::{document, fill_hook, fill_operator, policy_document};
