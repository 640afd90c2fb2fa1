//! What to say of a file of weights of which nothing fits a network.

use formats::interop::Weights;
use loaders::printable;
use net::NetSpec;

/// Why nothing fits, and a rule that would help where all names have one beginning too many. `alike`: a name that both have, with its
/// shapes in the file and in the network, which says more than the first name of each.
pub fn nothing_fits<'a>(
    net: &NetSpec,
    weights: &Weights,
    names: &[&str],
    found: impl Iterator<Item = &'a String>,
    alike: Option<(&str, &[usize], &[usize])>,
) -> String {
    let found: Vec<&String> = found.collect();
    // wrappers add a prefix to the names of all tensors, such as `_orig_mod.module.`
    let beginnings = found.iter().flat_map(|name| name.match_indices('.').map(|(at, _)| name.split_at(at + 1)));
    let begin = beginnings.filter(|(_, rest)| names.contains(rest)).map(|(begin, _)| begin).next();
    let cure = match begin {
        Some(begin) => {
            format!("init.match = [[\"{}(.*)\", \"$1\"]] would fit", printable(&begin.replace('.', "\\\\.")))
        }
        None => "give init.match rules from its names to the network's, or another file".into(),
    };
    let shown = |name: &str| printable(name).to_string();
    let sides = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
    if let Some((name, file, network)) = alike {
        return format!(
            "{}: none of its {} tensors matches network {} in both name and shape: {} is {} in the file, {} in the network; take a file of \
             this very network, or change model",
            weights.path.display(),
            weights.tensors.len(),
            net.name,
            shown(name),
            sides(file),
            sides(network),
        );
    }
    format!(
        "{}: not one of its {} tensors is one of network {} by name and shape (it has {}, the network {}); {cure}",
        weights.path.display(),
        weights.tensors.len(),
        net.name,
        found.first().map_or("none".into(), |name| shown(name)),
        names.first().map_or("none".into(), |name| shown(name)),
    )
}
