//! What reviews under way may take together, as a part of what the process may.

/// Bytes that the bodies of admission reviews under way may have together.
const BODIES: usize = 64 * 1024 * 1024;
/// Bytes of memory that all conversions under way may take together.
const CONVERSIONS: usize = 512 * 1024 * 1024;
/// Bytes of a limit that no share comes from: the program, its threads, and the connections of a few clients.
const PROCESS: usize = 24 * 1024 * 1024;
/// A conversion review in memory: its body, the converted objects, and the answer.
const COPIES: usize = 3;

/// Bytes of bodies that calls share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Of admission reviews.
    pub(crate) admission: usize,
    /// Of conversion reviews.
    pub(crate) conversion: usize,
    /// The most that one conversion review may have, whatever it is allowed.
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
    fn reviews_are_granted_less_than_half_of_a_limit_and_never_more_than_without_one() {
        for (limit, admission, conversion) in [(16, 0, 0), (128, 6, 13), (512, 30, 61), (4096, 64, 170)] {
            let Memory { admission: bodies, conversion: converted, largest } = Memory::of(Some(limit * MIB));
            assert_eq!((bodies / MIB, converted / MIB, largest), (admission, conversion, converted), "{limit} MiB");
            assert!(bodies + COPIES * converted < limit * MIB / 2, "{limit} MiB");
        }
        assert_eq!(Memory::of(None).conversion, CONVERSIONS / COPIES);
    }
}
