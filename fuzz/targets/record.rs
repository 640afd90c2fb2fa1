//! Fuzzes TFRecord framing with arbitrary bytes as a shard.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loaders::record::{OVERHEAD, RecordWriter, read_record};

fuzz_target!(|data: &[u8]| trireme_fuzz::read(data.len(), 1 << 20, || shard(data)));

fn shard(data: &[u8]) {
    let mut offset = 0;
    while let Ok((payload, next)) = read_record(data, offset) {
        assert_eq!(next, offset + payload.len() as u64 + OVERHEAD);
        // equal payloads have equal records
        let mut writer = RecordWriter::new(Vec::new());
        writer.write(payload).unwrap();
        assert_eq!(writer.finish().unwrap(), data[offset as usize..next as usize]);
        offset = next;
    }
}
