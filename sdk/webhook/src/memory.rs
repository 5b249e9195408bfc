//! Memory limits of reviews in flight, as parts of the limit of the process.

/// Limit of the bodies of all admission reviews in flight, in bytes.
const BODIES: usize = 64 * 1024 * 1024;
/// Limit of the memory of all conversions in flight, in bytes.
const CONVERSIONS: usize = 512 * 1024 * 1024;
/// Bytes of a process's limit that no review gets: the program, its threads, and the connections of a few clients.
const PROCESS: usize = 24 * 1024 * 1024;
/// Copies of a conversion review in memory: its body, the converted objects, and the answer.
const COPIES: usize = 3;

/// Limits of the bodies of reviews in flight, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// All admission reviews together.
    pub(crate) admission: usize,
    /// All conversion reviews together.
    pub(crate) conversion: usize,
    /// One conversion review, whatever its kind allows.
    pub(crate) largest: usize,
}

impl Memory {
    /// The shares of a process that may take `limit` bytes, or of one that may take what it needs.
    ///
    /// A process takes 24 MiB for itself. Of the rest, a sixteenth is for bodies of admission, each of which is in memory several times
    /// while it is read and decoded, and three eighths for conversions. The remainder is for what does not come from reviews: connections,
    /// the stores of controllers, and what the allocator keeps. A limit never grants more than there is without one.
    pub(crate) fn of(limit: Option<usize>) -> Self {
        let Some(limit) = limit else {
            return Self { admission: BODIES, conversion: CONVERSIONS / COPIES, largest: usize::MAX };
        };
        let limit = limit.saturating_sub(PROCESS);
        let conversion = (limit / 8 * 3).min(CONVERSIONS) / COPIES;
        Self { admission: (limit / 16).min(BODIES), conversion, largest: conversion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn reviews_get_less_than_half_of_the_memory_limit() {
        for (limit, admission, conversion) in [(16, 0, 0), (128, 6, 13), (512, 30, 61), (4096, 64, 170)] {
            let Memory { admission: bodies, conversion: converted, largest } = Memory::of(Some(limit * MIB));
            assert_eq!((bodies / MIB, converted / MIB, largest), (admission, conversion, converted), "{limit} MiB");
            assert!(bodies + COPIES * converted < limit * MIB / 2, "{limit} MiB");
        }
        assert_eq!(Memory::of(None).conversion, CONVERSIONS / COPIES);
    }
}
