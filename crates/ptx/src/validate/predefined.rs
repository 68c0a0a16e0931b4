//! The names that PTX itself declares: special registers and `WARP_SZ`. What they hold is for devices.

/// Single names.
const NAMES: [&str; 39] = [
    "%aggr_smem_size",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%cluster_ctaid",
    "%cluster_ctarank",
    "%cluster_nctaid",
    "%cluster_nctarank",
    "%clusterid",
    "%ctaid",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nclusterid",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%reserved_smem_offset_0",
    "%reserved_smem_offset_1",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_cap",
    "%reserved_smem_offset_end",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
    "WARP_SZ",
    "_",
];

/// Prefixes that are followed by a number, and how many there are.
const FAMILIES: [(&str, u32); 2] = [("%envreg", 32), ("%pm", 8)];

/// Whether PTX declares `name` itself; `_`, the sink, counts.
pub(super) fn is_predefined(name: &str) -> bool {
    if NAMES.binary_search(&name).is_ok() {
        return true;
    }
    FAMILIES.iter().any(|&(prefix, count)| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            let digits = if prefix == "%pm" {
                rest.strip_suffix("_64").unwrap_or(rest)
            } else {
                rest
            };
            let is_plain = digits == "0" || !digits.starts_with(['0', '+']);
            is_plain && digits.parse::<u32>().is_ok_and(|index| index < count)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_for_the_search() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn families_end_where_the_isa_ends_them() {
        for name in [
            "%envreg0",
            "%envreg31",
            "%pm7",
            "%pm0_64",
            "%laneid",
            "%tid",
            "_",
        ] {
            assert!(is_predefined(name), "{name}");
        }
        for name in [
            "%envreg32",
            "%envreg01",
            "%pm8",
            "%pm",
            "%envreg0_64",
            "%tidy",
            "%r1",
            "%pm+1",
        ] {
            assert!(!is_predefined(name), "{name}");
        }
    }
}
