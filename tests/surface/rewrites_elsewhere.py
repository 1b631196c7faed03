"""The stated rewrites whose properties stand beside what they are of: the rewrite, and the test."""

FORMS = "tests/lower_tile/test_wider_forms.py"
VECTORS = "tests/lower_tile/test_serial.py::test_vectors_are_written_out"
MEANS = "tests/lower_tile/test_about_means.py::test_rows_far_from_zero_keep_their_digits"
BOUNDED = "tests/incremental/test_bounded_weights.py::test_a_weight_of_known_sign_needs_no_pivot"
ONE_ROW = "tests/incremental/test_one_row.py::test_any_program_means_the_definition"
WIDER = f"{FORMS}::test_stages_and_sums_keep_their_meaning_under_any_plan"
WHOLE = "tests/incremental/test_whole.py::test_any_spelling_keeps_its_digits"
RATIOS = "tests/incremental/test_ratios.py::test_what_a_ratio_exceeds_1_by_keeps_its_digits"
POWERS = "tests/lower_tile/test_powers.py::test_a_power_is_the_product_of_its_factors"
FOUND = "tests/surface/test_found_by_fuzz.py"
ELSEWHERE = {
    "Σ_k w(k)·g(k,e), Σ_k w(k)": ONE_ROW,
    "⊕_n ⊕_c f(n, c)": "tests/incremental/test_coalesce.py::test_the_program_equals_the_definition",
    "x[b, ⌊p / |c|⌋, p mod |c|]": "tests/incremental/test_coalesce.py::test_axes_side_by_side_are_one_dimension",
    "parallel i: A;  parallel i: B": "tests/lower_tile/test_tile_properties.py::test_joining_loops_changes_nothing",
    "x·g/v": "tests/lower_tile/test_tile_properties.py::test_what_depends_on_the_row_alone_may_leave_the_loop",
    "h²·(Y − a/h·X')²": "tests/incremental/test_digits.py::test_a_rotation_by_a_right_angle_divides_by_nothing",
    "f(d)": "tests/lower_tile/test_tile_properties.py::test_what_depends_on_the_row_alone_may_leave_the_loop",
    "f(s₁ + s₂)": "tests/lower_tile/test_tile_properties.py::test_sums_of_products_are_one_product",
    "for t < 1: A": "tests/lower_tile/test_tile_properties.py::test_loops_of_one_step_are_no_loops",
    "Σ_k f(x, p), p = ⊕_m g(y)": WIDER,
    "s[n, t] = Σ_c f(c, n, t), then s'[m, t] = Σ_u f(u, m, t)": (
        "tests/incremental/test_order.py::test_every_rewrite_is_exact"
    ),
    **dict.fromkeys(("Σ_k f(s), s = Σ_u g(t, u), t = ⊕_v …", "Σ_k s·r, s and r computed"), WIDER),
    **dict.fromkeys(("out = Σ_j f(d[j]), d reduced", "out[k] = f(x[k], Σ_j d[j])"), WIDER),
    "out[m, n] = bfloat16((Σ_k A[m, k]·B[n, k])·a(m)·b(n))": "tests/runtime/test_scaled.py::test_it_is_the_product",
    "Σ_i f(x[i,k], s), s[i] = Σ_j g": f"{FORMS}::test_what_every_row_would_reduce_again_is_made_ahead",
    "Σ_k f(x[i,k], s), s[i] = Σ_j g": "tests/incremental/test_row_producers.py::test_both_ways_are_the_definition",
    "Σ_k f(s)·r, f rounded to 16 bits": f"{FORMS}::test_an_operand_of_more_columns_than_a_block_holds_is_made_ahead",
    "x[i, j] = f(g); y[i, j] = h(g)": "tests/lower_tile/test_subexpressions.py::test_a_name_in_a_loop_changes_nothing",
    **dict.fromkeys(("x^(2n)", "x^(2n + 1)", "x^(n + 1/2)", "x^(-1/2)", "x^(-3/2)", "x^(-n - 1/2)"), POWERS),
    **dict.fromkeys(("Σ_j f(Σ_d g(x[i, d], y[j, d]))", "out[i, e] = Σ_j f(x[i, e], y[j])"), VECTORS),
    "out = exp(q·m)·a, a = Σ exp(q·(u − m))·f, m = max u": BOUNDED,
    **dict.fromkeys(("Σ_k f(q,k)·g(k,e)·h(k,c)", "Σ_k f(q,k)·g(k,e)", "out, out' of one loop"), WIDER),
    **dict.fromkeys(("t·(E[u]^q·Π f^p)^k", "f·(Q/n − S²/n²)"), WHOLE),
    **dict.fromkeys(("n·Q/S² − 1", "log Q − 2·log S"), RATIOS),
    **dict.fromkeys(("(x − c) − δ", "Σ_j (x[i, j] − c[i])"), MEANS),
    "Σ_n α·(x[n] − R/|n|)": "tests/gradient/test_residuals.py::test_gradients_are_as_near_as_bfloat16_is",
    "x/v": "tests/lower_tile/test_elementwise.py::test_divisors_of_any_size",
    "Σ t·(x − c)·f + c·Σ t·f": "tests/incremental/test_weights.py::test_a_pivot_of_another_sum_costs_no_digit",
    "Σ where(c, f, 0)·g": f"{FOUND}::test_a_choice_beside_a_factor_hides_its_own_branch_alone",
    "Σ where(c, h, 0)·g": f"{FOUND}::test_a_mask_of_no_weight_hides_nothing_beside_it",
    "Σ exp(t + s − max(t + s))": f"{FOUND}::test_what_cancels_in_an_exponent_shows_where_it_is_not_finite",
}
