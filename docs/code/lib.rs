//! Generates the reference pages of the book, and compiles its code.
//!
//! [`reference()`] writes the reference of the command line, from its definitions, [`values()`] that of the charts' values,
//! from their schemas, and [`troubleshoot()`] the table of `doctor`'s checks, from its catalogue. The pages with Rust code are included here as documentation of empty types: `cargo test --doc`
//! compiles each block, and runs those that are not marked `no_run`. The tutorial's files are compared with two crates
//! that are built and tested (`tests/docs/chapters.rs`).

mod checks;
mod cli;
mod values;

pub use checks::troubleshoot;
pub use cli::reference;
pub use values::values;

macro_rules! chapters {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(#[cfg(doctest)]
        #[doc = include_str!(concat!("../src/", $file))]
        pub enum $name {})+
    };
}

chapters! {
    Introduction = "introduction.md",
    Validate = "how-to/validate.md",
    Mutate = "how-to/mutate.md",
    Caches = "how-to/caches.md",
    Subresources = "how-to/subresources.md",
    Dynamic = "how-to/dynamic.md",
    Warnings = "how-to/warnings.md",
    Policies = "how-to/policies.md",
    Flags = "how-to/flags.md",
    Convert = "how-to/convert.md",
    Migrate = "how-to/migrate.md",
    Test = "how-to/test.md",
    Limits = "how-to/limits.md",
    Controllers = "how-to/controllers.md",
    Certificates = "how-to/certificates.md",
    Embed = "how-to/embed.md",
    Admission = "explanation/admission.md",
    Conversion = "explanation/conversion.md",
    // Shown by package registries. Crates that need nothing else compile theirs themselves.
    Package = "../../sdk/portcullis/README.md",
    OperatorPackage = "../../sdk/operator/README.md",
}
