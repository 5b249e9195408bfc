//! Kubernetes quantities: `500m`, `128Mi`, `1.5`, `1e3`. Read to be checked and compared, never to be rewritten.
//!
//! Read here because `kube_quantity` 0.9 has numbers as `f64` and compares with factors of `f32`: `1073741900` is less
//! than `1Gi` to it. It refuses `2E`, takes `Ki` and `--1` for quantities, and panics where a comparison overflows, as
//! of `1000000P` with `1n`.

use mcp_api::v1beta1::{ResourceList, ResourceRequirements};

use crate::problem::Problem;

/// Reads a quantity into billionths.
///
/// # Errors
/// A sentence for the author.
pub fn parse(text: &str) -> Result<i128, String> {
    let wrong = || format!("{text:?} is not a quantity; write a number with a suffix such as \"500m\" or \"128Mi\"");
    let huge = || format!("{text:?} is too large a quantity");
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(wrong());
    }
    let (base, exponent): (i128, i32) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E']).ok_or_else(wrong)?;
            (10, digits.parse().map_err(|_| wrong())?)
        }
    };
    // The value times 10^9, exactly as far as billionths go; what is smaller rounds up, as in Kubernetes.
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let mantissa: i128 = if significant.is_empty() { 0 } else { significant.parse().map_err(|_| huge())? };
    let fraction = i32::try_from(fraction.len()).map_err(|_| huge())?;
    let (factor, tens) = if base == 10 {
        (1, exponent.saturating_sub(fraction))
    } else {
        let power = u32::try_from(exponent).map_err(|_| wrong())?;
        (base.checked_pow(power).ok_or_else(huge)?, -fraction)
    };
    let scaled = mantissa.checked_mul(factor).ok_or_else(huge)?;
    let tens = tens.saturating_add(9);
    let value = match u32::try_from(tens) {
        _ if scaled == 0 => 0,
        Ok(up) => 10_i128.checked_pow(up).and_then(|power| scaled.checked_mul(power)).ok_or_else(huge)?,
        Err(_) => match 10_i128.checked_pow(tens.unsigned_abs()) {
            Some(power) => scaled / power + i128::from(scaled % power != 0),
            None => 1,
        },
    };
    Ok(if negative { -value } else { value })
}

/// The problem of `spec.resources`.
pub fn problems(resources: &ResourceRequirements) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut amounts = |kind: &str, list: Option<&ResourceList>| {
        let amount = |name: &str, text: Option<&String>, problems: &mut Vec<Problem>| {
            let text = text?;
            let read = parse(text)
                .and_then(|amount| if amount < 0 { Err(format!("{text:?} is negative")) } else { Ok(amount) });
            read.map_err(|message| problems.push(Problem::new(format!("spec.resources.{kind}.{name}"), message))).ok()
        };
        let list = list.cloned().unwrap_or_default();
        [amount("cpu", list.cpu.as_ref(), &mut problems), amount("memory", list.memory.as_ref(), &mut problems)]
    };
    let requests = amounts("requests", resources.requests.as_ref());
    let limits = amounts("limits", resources.limits.as_ref());
    for (name, (request, limit)) in ["cpu", "memory"].into_iter().zip(requests.into_iter().zip(limits)) {
        if request.zip(limit).is_some_and(|(request, limit)| request > limit) {
            let message = format!("is more than spec.resources.limits.{name}; lower it or raise the limit");
            problems.push(Problem::new(format!("spec.resources.requests.{name}"), message));
        }
    }
    problems
}
