//! Decimal digits of numbers, where formatting by `std::fmt` would take longer than all else that is done to a record.

/// Digits of `u64::MAX`.
const MOST: usize = 20;

/// Appends the decimal digits of a number.
pub fn push_decimal(mut number: u64, out: &mut String) {
    let (mut digits, mut at) = ([b'0'; MOST], MOST);
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    // digits are UTF-8
    out.push_str(str::from_utf8(&digits[at..]).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_formatted() {
        let powers = (0..20).map(|power| 10u64.pow(power));
        for number in powers.flat_map(|power| [power - 1, power, power + 7]).chain([u64::MAX]) {
            let mut text = "n".to_string();
            push_decimal(number, &mut text);
            assert_eq!(text, format!("n{number}"));
        }
    }
}
