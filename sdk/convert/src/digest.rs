//! Digests of the keys of objects, to compare the members that were read with those that are written.

/// Distinguishes keys by all their bytes: two keys of one length that differ in one word of eight bytes never have the
/// same digest. It is cheap, because it runs for every key of every object; a client that makes two keys of one digest
/// harms only its own object.
pub(crate) fn digest(key: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    // Each step is invertible, so different inputs give different outputs.
    let step = |digest: u64, word: u64| {
        let digest = (digest ^ word).wrapping_mul(FACTOR);
        digest ^ (digest >> 29)
    };
    let (words, rest) = key.as_bytes().as_chunks::<8>();
    let digest = words.iter().fold(key.len() as u64, |digest, word| step(digest, u64::from_le_bytes(*word)));
    step(digest, rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}
