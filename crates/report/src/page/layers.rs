//! Statistics of the layers, as few as a page has room for.

use serde_json::{Value, json};

use super::super::history::{LayersLine, Log, SpreadLine, TensorLine};

/// Numbers of all layers and steps together, about.
const MOST: usize = 40_000;
/// Of one tensor at one step.
const EACH: usize = 5;

/// By parameters, each number over the steps; null where nothing was measured.
pub(super) fn of(log: &Log) -> Value {
    let lines = log.layers.lines();
    let Some(&last) = lines.last() else { return Value::Null };
    let room = (MOST / EACH / last.tensors.len().max(1)).max(2);
    let lines: Vec<&LayersLine> = match lines.len() <= room {
        true => lines,
        // the first and the last are among them
        false => (0..room).map(|k| lines[k * (lines.len() - 1) / (room - 1)]).collect(),
    };
    let tensors = last.tensors.iter().enumerate().map(|(index, tensor)| {
        let of = |value: fn(&TensorLine) -> Option<f64>| {
            let known =
                |line: &&LayersLine| line.tensors.get(index).filter(|other| other.name == tensor.name).and_then(value);
            lines.iter().map(known).collect::<Vec<_>>()
        };
        json!({
            "name": tensor.name,
            "elements": tensor.elements,
            "weight": whole(&tensor.weight),
            "gradient": whole(&tensor.gradient),
            "weight_deviation": of(|tensor| tensor.weight.deviation),
            "gradient_deviation": of(|tensor| tensor.gradient.deviation),
            "gradient_mean": of(|tensor| tensor.gradient.mean),
            "gradient_zeros": of(|tensor| tensor.gradient.zeros),
            "zero_codes": of(|tensor| tensor.zero_codes),
        })
    });
    json!({ "steps": lines.iter().map(|line| line.step).collect::<Vec<_>>(), "tensors": tensors.collect::<Vec<_>>() })
}

/// All that is known of the last line.
fn whole(spread: &SpreadLine) -> Value {
    let SpreadLine { mean, deviation, least, most, zeros } = spread;
    json!({ "mean": mean, "deviation": deviation, "least": least, "most": most, "zeros": zeros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_parameter_over_the_steps() {
        let line = |step: u64| {
            let tensor = |name: &str| {
                format!(
                    "{{\"name\":\"{name}\",\"elements\":4,\"gradient\":{{\"deviation\":{step}.5,\"mean\":null}},\"zero_codes\":0.25}}"
                )
            };
            format!("{{\"event\":\"layers\",\"step\":{step},\"tensors\":[{},{}]}}\n", tensor("a"), tensor("b"))
        };
        let log = Log::from_lines((line(10) + &line(20)).as_bytes()).unwrap();
        let data = of(&log);
        assert_eq!(data["steps"], json!([10, 20]));
        assert_eq!(
            (&data["tensors"][1]["gradient_deviation"], &data["tensors"][1]["name"]),
            (&json!([10.5, 20.5]), &json!("b"))
        );
        assert_eq!(
            (&data["tensors"][0]["gradient_mean"], &data["tensors"][0]["zero_codes"]),
            (&json!([null, null]), &json!([0.25, 0.25]))
        );
        assert_eq!(of(&Log::default()), Value::Null);
        let log = Log::from_lines((1..200).map(line).collect::<String>().replace("\"b\"", "\"a\"").as_bytes()).unwrap();
        assert_eq!(of(&log)["steps"].as_array().unwrap().len(), 199);
    }
}
