//! Shortcuts that need no pass of their own, where the device's batch normalisation reads through them: the norm behind one reads its
//! residual from the shortcut's input, and the norm before it the second summand of its gradient from that of the shortcut's output.

use backend::{Backend, ShortcutOf, Through};
use net::{NetSpec, Op, Shape};

/// What each node is read through, and which shortcuts that leaves without a pass.
pub(super) struct Shortcuts {
    /// By node.
    pub through: Vec<Through>,
    /// By node.
    pub passed_over: Vec<bool>,
}

impl Shortcuts {
    pub fn new<B: Backend>(backend: &B, net: &NetSpec, shapes: &[Shape]) -> Self {
        let nodes = net.nodes.len();
        let mut all = Self { through: vec![Through::default(); nodes], passed_over: vec![false; nodes] };
        for (node, reads) in net.nodes.iter().enumerate() {
            let Op::Shortcut(shortcut) = reads.op else { continue };
            let of = ShortcutOf { shortcut, x: shapes[reads.inputs[0].0] };
            if let Some((before, behind)) = neighbours(net, node).filter(|_| backend.reads_through(&of)) {
                all.through[before].second = Some(of);
                all.through[behind].residual = Some(of);
                all.passed_over[node] = true;
            }
        }
        all
    }
}

/// The norms before and behind a shortcut: the latter alone reads it, as its residual; the former's output is also read otherwise, so that
/// its gradient has another summand.
fn neighbours(net: &NetSpec, shortcut: usize) -> Option<(usize, usize)> {
    let x = net.nodes[shortcut].inputs[0].0;
    let is_norm = |node: &usize| matches!(net.nodes[*node].op, Op::Norm(_));
    let before = x.checked_sub(1).filter(is_norm)?;
    let &[(behind, 1)] = net.readers(shortcut + 1).as_slice() else { return None };
    let mut others =
        net.readers(x).into_iter().filter(|(node, _)| *node != shortcut).map(|(node, _)| &net.nodes[node].op);
    let (first, plain) = (others.next()?, |op: &Op| !op.renames() && !matches!(op, Op::Shortcut(_)));
    (is_norm(&behind) && plain(first) && others.all(plain)).then_some((before, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::{Conv, Norm, Shortcut};

    /// A norm, a convolution and a shortcut of it, and a norm of both; `more` adds what is read beside.
    fn block(more: impl FnOnce(&mut NetSpec)) -> Option<(usize, usize)> {
        let mut net = NetSpec::new("block", Shape::image(3, 8, 8));
        let x = net.add("conv1", Conv::new(16, 3).pad(1), net.image());
        let x = net.add("bn1", Norm::new().relu(), x);
        let y = net.add("conv2", Conv::new(32, 3).pad(1).stride(2), x);
        let x = net.add("shortcut", Shortcut { out_channels: 32, stride: 2 }, x);
        net.join("bn2", Norm::new().residual(), &[y, x]);
        more(&mut net);
        neighbours(&net, 3)
    }

    #[test]
    fn a_shortcut_between_two_norms_is_read_through() {
        use net::Id;
        assert_eq!(block(|_| ()), Some((1, 4)));
        assert_eq!(block(|net| _ = net.add("conv3", Conv::new(4, 1), Id(2))), Some((1, 4)));
        // its output is read elsewhere too, or two shortcuts read its input
        assert_eq!(block(|net| net.nodes[4].inputs[0] = Id(4)), None);
        assert_eq!(block(|net| _ = net.add("shortcut2", Shortcut { out_channels: 16, stride: 2 }, Id(2))), None);
        // what is before or behind it is no norm
        assert_eq!(block(|net| net.nodes[3].inputs[0] = Id(1)), None);
        assert_eq!(block(|net| net.nodes[4].op = net::Add.into()), None);
        // the only other reader is another shortcut
        assert_eq!(block(|net| net.nodes[2].op = Shortcut { out_channels: 32, stride: 2 }.into()), None);
    }
}
