//! What the HParams page of TensorBoard reads: the keys of the recipe, and how the run ended
//! (tensorboard/plugins/hparams/plugin_data.proto).

use super::super::message::Message;
use super::event_file::now;
use super::value::{FLOAT, TENSOR, of_plugin};

/// `STATUS_SUCCESS`.
const SUCCESS: u64 = 1;

/// The keys of a recipe with their values, at the start of a run.
pub(super) fn start(recipe: &toml::Table) -> Message {
    let info = entries("", recipe).into_iter().fold(Message::new(), |info, entry| info.message(1, entry));
    value("_hparams_/session_start_info", Message::new().message(3, info.double(5, now())))
}

/// The end of a run.
pub(super) fn end() -> Message {
    let info = Message::new().number(1, SUCCESS).double(2, now());
    value("_hparams_/session_end_info", Message::new().message(4, info))
}

fn value(tag: &str, content: Message) -> Message {
    let plugin = Message::new().text(1, "hparams").message(2, content);
    // an empty tensor
    let shape = Message::new().message(2, Message::new().number(1, 0));
    of_plugin(tag, plugin, TENSOR, Message::new().number(1, FLOAT).message(2, shape))
}

/// A map's entries: key 1, value 2, a `google.protobuf.Value` of a number 2, a string 3 or a truth 4. Lists are strings.
fn entries(prefix: &str, table: &toml::Table) -> Vec<Message> {
    let mut all = Vec::new();
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        let value = match value {
            toml::Value::Table(inner) => {
                all.extend(entries(&path, inner));
                continue;
            }
            toml::Value::Boolean(truth) => Message::new().number(4, u64::from(*truth)),
            toml::Value::Integer(number) => Message::new().double(2, *number as f64),
            toml::Value::Float(number) => Message::new().double(2, *number),
            toml::Value::String(text) => Message::new().text(3, text),
            other => Message::new().text(3, &other.to_string()),
        };
        all.push(Message::new().text(1, &path).message(2, value));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_types() {
        let table = "epochs = 3\nflag = false\n[schedule]\nbase_lr = 0.5\nmilestones = [1, 2]".parse().unwrap();
        let bytes: Vec<Vec<u8>> = entries("", &table).iter().map(|entry| entry.bytes().to_vec()).collect();
        let number = |key: &str, value: f64| {
            Message::new().text(1, key).message(2, Message::new().double(2, value)).bytes().to_vec()
        };
        assert_eq!(bytes.len(), 4);
        assert!(bytes.contains(&number("epochs", 3.0)) && bytes.contains(&number("schedule.base_lr", 0.5)));
        assert!(bytes.contains(&b"\x0a\x04flag\x12\x02\x20\x00".to_vec()), "{bytes:?}");
        assert!(bytes.iter().any(|entry| entry.ends_with(b"[1, 2]")));
    }
}
