//! f32 as bytes, for the way between ranks.

/// Appends values to bytes.
pub fn to_bytes(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// Reads values back.
pub fn from_bytes(bytes: &[u8], values: &mut [f32]) {
    let (words, _) = bytes.as_chunks::<4>();
    values.iter_mut().zip(words).for_each(|(value, word)| *value = f32::from_le_bytes(*word));
}
