//! The parts of `make images` that are no shell: the root certificates of an image, its SBOM, and the check of an archive that
//! `pack.sh` wrote.

mod archive;
mod roots;
mod sbom;

pub use archive::{Image, Invalid, check};
pub use roots::write_roots;
pub use sbom::complete_sbom;
