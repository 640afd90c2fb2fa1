//! Fuzzes TFRecord framing with arbitrary bytes as a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loaders::record::{OVERHEAD, append_record, read_record};

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || shard(data)));

fn shard(data: &[u8]) {
    let mut offset = 0;
    while let Ok((payload, next)) = read_record(data, offset) {
        assert_eq!(next, offset + payload.len() as u64 + OVERHEAD);
        // equal payloads have equal records
        let mut record = Vec::new();
        append_record(&mut record, |out| out.extend_from_slice(payload));
        assert_eq!(record, data[offset as usize..next as usize]);
        offset = next;
    }
}
