//! How deep calls nest, and what an entry needs for all the functions that it may call.

use super::body::Summary;
use super::text::Text;
use crate::confined::LaunchNeeds;
use crate::error::{VerifyError, VerifyErrorKind};
use crate::limits::MAX_CALL_DEPTH;

/// What each function needs, called functions included.
pub(super) fn nesting(
    text: &Text<'_>,
    functions: &[Summary],
) -> Result<Vec<LaunchNeeds>, VerifyError> {
    let order = callees_first(functions);
    let mut needs: Vec<LaunchNeeds> = functions
        .iter()
        .map(|function| LaunchNeeds {
            dynamic_padding: function.dynamic_padding,
            call_depth: 0,
        })
        .collect();
    let most = if order.len() == functions.len() {
        for &caller in &order {
            for call in &functions[caller].calls {
                let callee = needs[call.callee];
                let need = &mut needs[caller];
                need.call_depth = need.call_depth.max(callee.call_depth + 1);
                need.dynamic_padding = need.dynamic_padding.max(callee.dynamic_padding);
            }
        }
        needs.iter().map(|need| need.call_depth).max().unwrap_or(0)
    } else {
        let mut most = 0;
        for call in functions.iter().flat_map(|function| &function.calls) {
            let what = "the depth";
            let depth = call
                .depth
                .ok_or_else(|| VerifyErrorKind::Call { what }.at(call.line))?;
            most = most.max(depth);
        }
        let padding = needs.iter().filter_map(|need| need.dynamic_padding).max();
        needs.fill(LaunchNeeds {
            dynamic_padding: padding,
            call_depth: most,
        });
        most
    };
    if most > MAX_CALL_DEPTH {
        let line = text
            .functions
            .first()
            .map_or(0, |function| function.at.line);
        let (what, limit) = ("calls within calls", u64::from(MAX_CALL_DEPTH));
        return Err(VerifyErrorKind::Limit { what, limit }.at(line));
    }
    Ok(needs)
}

/// Functions behind all that they call; those that call each other, and their callers, are left out.
fn callees_first(functions: &[Summary]) -> Vec<usize> {
    let mut callers = vec![Vec::new(); functions.len()];
    let mut waits_for: Vec<usize> = Vec::with_capacity(functions.len());
    for (caller, function) in functions.iter().enumerate() {
        for call in &function.calls {
            callers[call.callee].push(caller);
        }
        waits_for.push(function.calls.len());
    }
    let mut order: Vec<usize> = (0..functions.len())
        .filter(|&index| waits_for[index] == 0)
        .collect();
    let mut next = 0;
    while let Some(&callee) = order.get(next) {
        next += 1;
        for &caller in &callers[callee] {
            waits_for[caller] -= 1;
            if waits_for[caller] == 0 {
                order.push(caller);
            }
        }
    }
    order
}
