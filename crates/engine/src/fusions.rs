//! What operations may do for those that read what they make: share the work of the only one, or narrow it to bf16 for all.

use backend::Backend;
use net::NetSpec;

/// For each tensor, input first: whether one operation alone reads it, as its first input, and nobody after the pass.
pub(super) fn read_once(net: &NetSpec) -> Vec<bool> {
    let after: Vec<usize> = net.scores().chain([net.features().0]).collect();
    let once = |tensor: usize| {
        let &[(reader, 0)] = net.readers(tensor).as_slice() else { return false };
        let made = |node: usize| !net.nodes[node].op.renames();
        tensor.checked_sub(1).is_some_and(made) && made(reader) && !after.contains(&tensor)
    };
    (0..=net.nodes.len()).map(once).collect()
}

/// For each tensor, input first: whether all operations that read it take it in bf16, and nobody reads it after the pass.
pub(super) fn read_in_bf16<B: Backend>(backend: &B, net: &NetSpec) -> Vec<bool> {
    let after: Vec<usize> = net.scores().chain([net.features().0]).collect();
    let all = |tensor: usize| {
        let readers = net.readers(tensor);
        let takes = |&(node, input): &(usize, usize)| backend.reads_bf16(&net.nodes[node].op, input);
        !readers.is_empty() && !after.contains(&tensor) && readers.iter().all(takes)
    };
    (0..=net.nodes.len()).map(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Shape;
    use net::{Conv, Flatten, Id, Linear, Norm};

    /// A residual block and a classifier; `more` adds what is read beside.
    fn tensors(more: impl FnOnce(&mut NetSpec)) -> Vec<usize> {
        let mut net = NetSpec::new("block", Shape::image(3, 4, 4));
        let x = net.add("conv1", Conv::new(8, 3).pad(1), net.image());
        let x = net.add("bn1", Norm::new().relu(), x);
        let y = net.add("conv2", Conv::new(8, 3).pad(1), x);
        let y = net.add("bn2", Norm::new().relu(), y);
        let y = net.add("conv3", Conv::new(8, 3).pad(1), y);
        let x = net.join("bn3", Norm::new().residual(), &[y, x]);
        let x = net.add("flatten", Flatten, x);
        net.add("fc", Linear::new(4), x);
        more(&mut net);
        let found = read_once(&net);
        (0..found.len()).filter(|tensor| found[*tensor]).collect()
    }

    #[test]
    fn only_what_one_operation_reads_is_shared() {
        // not the image, the block's input, what is renamed, a new name, and the scores
        assert_eq!(tensors(|_| ()), [1, 3, 4, 5]);
        assert_eq!(tensors(|net| net.head(Id(3), 0.5)), [1, 4, 5]);
        assert_eq!(tensors(|net| net.nodes[6].inputs = vec![Id(6), Id(5)]), [1, 3, 4]);
        // without the block's end its input is read once; the last norm's output are the features, which are read after the pass
        assert_eq!(tensors(|net| net.nodes.truncate(5)), [1, 2, 3]);
    }
}
