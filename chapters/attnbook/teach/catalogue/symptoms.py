"""What one sees, and which of the known mistakes may be behind it."""

#: A symptom, and the names of mistakes; each mistake is under at least one.
SYMPTOMS = {
    symptom: names.split()
    for symptom, names in {
        "The loss is too low at once": """
        asks_for_the_token_itself shows_the_answer
        counts_words_in_plain_sight asks_for_every_word
        asks_for_the_padding divides_by_all_places inverted_causal_mask
        shows_the_next_word
        prefix_one_too_long keeps_its_own_value covers_the_random_words_too""",
        "The loss, or another score, is not what others report": """
        takes_softmax_twice averages_the_texts_means raises_two_to_the_nats
        averages_perplexities leaves_dropout_on averages_the_batches_means
        leaves_the_nats divides_by_all_places decays_through_the_gradient
        counts_words_in_plain_sight asks_for_every_word
        tells_the_models_chance normalises_the_columns
        counts_across_the_texts keeps_four_times_the_width
        looks_for_the_word_in_every_block adds_up_the_blocks_losses""",
        "It trains, but slowly, with jumps, or too little": """
        adds_the_heads_up keeps_the_first_of_each_group
        shifts_twice takes_softmax_twice softmax_twice forgets_the_scale
        attends_across_heads forgets_the_activation does_not_expand
        adds_no_positions reads_the_bare_stream
        runs_one_block_again_and_again memory_one_block_early
        keys_from_the_query_matrix leans_on_a_global
        merges_from_left_to_right
        adds_the_context_itself steps_at_once_and_sums
        averages_small_batches_alike
        bends_after_the_second_matrix rotates_along_the_heads
        reads_the_blocks_input divides_by_the_reciprocal drops_the_stream
        rotates_the_values_too ties_a_copy forgets_the_final_norm
        merges_without_transposing multiples_of_one_vector""",
        "NaN or infinity": """
        forgets_that_the_peak_was_taken_off
        underflows_to_nan nan_where_no_key_is_near exp_overflows
        divides_by_the_sum maximum_starts_at_zero
        maximum_of_the_whole_tensor one_maximum_for_all_groups
        takes_the_log_of_zero multiplies_by_infinity nan_in_masked_rows
        starts_the_peak_at_zero
        subtracts_two_large_squares adds_eps_outside_the_root
        divides_by_torchs_std adds_eps_to_the_root_mean_square
        leaves_nothing_where_sure
        takes_infinity_from_infinity keeps_to_the_second_peak
        raises_e_to_the_log makes_nan_of_two_nothings has_no_peak
        says_infinity_for_no_key""",
        "An error about sizes, or only for some sizes": """
        absorbs_without_transposing
        divides_without_keepdim transpose_hidden_by_a_square
        copied_without_transposing adds_the_context_itself
        projects_to_one_head copies_without_transposing scales_the_rows
        adds_the_head_itself masks_the_new_tokens_alone
        transposes_the_embeddings_too gives_every_head_its_own_keys
        stacks_and_forgets_to_transpose""",
        "Every shape is right, and the numbers are not": """
        takes_the_front_for_the_rotated_part shifts_every_score
        forgets_that_values_stand_behind pools_heads_that_are_apart
        drops_the_sink_and_divides_again
        query_and_key_swapped reshape_for_transpose cuts_across_tokens
        cuts_head_by_head views_instead_of_transposing
        merges_without_transposing reshapes_where_it_should_transpose
        reorders_the_values_too swaps_queries_and_keys bends_the_product
        swaps_gate_and_up multiples_of_one_vector
        forgets_the_norm_of_keys lays_the_angles_out_for_the_other
        divides_in_whole_numbers gives_every_column_its_own_wave
        closes_the_circle_early turns_by_one_radian
        adds_the_branch_to_itself divides_by_n_again keeps_the_normed_input
        norms_the_branch_alone""",
        "Right in the simple case, wrong in the next": """
        multiplies_by_the_variance divides_by_the_bandwidth_unsquared
        multiplies_by_temperature temperature_after_softmax divides_twice
        scales_by_the_full_width scales_by_d_model scales_the_mask_too
        rescales_the_wrong_way divides_by_the_dropped_share
        takes_the_variance adds_the_bias_in_every_slice
        zero_scores_taken_for_masked takes_d_k_for_any_inputs
        subtracts_two_large_squares reorders_across_heads leans_on_a_global
        subtracts_the_noise adds_the_wrong_sign takes_the_unbiased_variance
        transpose_hidden_by_a_square
        averages_the_halves averages_prefix_and_own
        reads_a_log_to_the_base_of_two drops_the_short_tile""",
        "Weights do not sum to one": """
        normalises_over_queries zeroes_its_weight_too_late
        divides_by_the_sum temperature_after_softmax softmax_over_queries
        softmax_down_the_columns removes_itself_after_softmax
        scale_outside_the_softmax zeroed_after_softmax
        rescales_the_wrong_way normalises_the_columns
        keeps_the_old_total divides_by_the_own_total""",
        "Weights are too even or too sharp": """
        scales_by_the_latents_width scales_by_the_usual_width
        scales_the_sink_as_a_score
        softmax_twice multiplies_by_temperature leaves_the_scale_out
        forgets_the_scale divides_by_d_k scales_by_the_full_width
        scales_by_d_model scales_the_cache_in_place
        divides_the_probabilities divides_twice rewards_the_distance
        counts_the_heads_from_zero""",
        "A token sees what it must not, or misses what it should see": """
        looks_one_too_far_back a_single_query_reads_everything
        reads_the_ring_in_its_order
        scores_itself_zero adds_a_boolean_mask mask_by_multiplication
        zeroed_after_softmax finite_fill causal_mask_top_left
        shows_the_next_word hides_the_word_itself
        inverted_causal_mask window_one_too_wide padding_on_the_queries
        attends_across_heads normalises_over_tokens
        normalises_tokens_and_width causal_over_the_source
        reads_the_padding prefix_one_too_long cuts_the_mask_to_one_row
        sees_the_first_key_only adds_to_the_blocks_input
        reads_the_blocks_input zero_scores_taken_for_masked
        keeps_its_own_value
        lines_up_the_first_tokens stops_at_the_first_row
        counts_from_the_first_key asks_the_first_query_alone
        lets_the_last_query_judge""",
        "Fine alone, wrong in a batch": """
        maximum_of_the_whole_tensor one_maximum_for_all_groups
        positions_count_the_padding goes_on_from_the_padding
        reads_the_padding padding_on_the_queries writes_on_after_the_end
        counts_the_width_of_the_batch cuts_at_the_longest_row
        one_mask_for_all_rows ends_all_with_the_first
        waits_for_all_to_end_at_once pads_on_the_right
        takes_zeros_for_padding takes_the_last_column one_chance_for_all
        shares_the_cache normalises_over_tokens averages_the_batches_means
        counts_the_prefix_once_for_all""",
        "The first token is right, later ones are not": """
        counts_the_window_from_the_chunk stores_before_it_reads
        numbers_the_new_tokens_from_zero sees_the_first_key_only
        counts_from_the_first_query starts_again_at_zero
        reads_the_empty_slots scales_the_cache_in_place
        forgets_what_is_cached keeps_the_start_of_a_long_chunk
        stops_at_the_last_slot causal_mask_top_left stacks_them_as_they_are
        angles_in_half_precision cuts_the_mask_to_one_row
        masks_the_new_tokens_alone feeds_the_last_token_twice
        takes_neighbours_for_pairs""",
        "A server's text depends on who else is there, or it stops": """
        forgets_the_table turns_page_and_offset_round
        counts_slots_from_the_chunk one_page_too_many rounds_the_sum
        counts_full_pages_only finds_the_whole_prompt looks_at_the_page_alone
        takes_a_page_that_is_not_full counts_before_the_hit
        gives_each_the_whole_budget never_cuts_a_prompt
        frees_what_others_hold never_frees_a_page
        frees_the_beginning_first""",
        "Loaded weights give other answers": """
        copied_without_transposing takes_the_tanh_formula swaps_gate_and_up
        takes_neighbours_for_pairs counts_the_heads_from_zero
        shares_one_norm norms_first_where_the_text_says_last
        transposes_only_what_does_not_fit leaves_the_square_ones
        looks_for_the_prefix
        looks_at_common_names_alone forgets_what_is_left_over
        keeps_the_books_epsilon cuts_head_by_head reorders_across_heads
        memory_without_its_norm stacks_them_as_they_are
        transposes_the_embeddings_too adds_eps_outside_the_root
        deals_the_shared_heads_out""",
        "The same input gives something else each time": """
        asks_the_method_train leaves_dropout_on decodes_with_dropout
        keeps_one_more shares_the_cache overwrites_the_scores""",
        "The text repeats itself, turns to nonsense or does not end": """
        asks_for_the_token_itself shifts_twice
        numbers_the_new_tokens_from_zero divides_the_probabilities
        divides_negative_logits gathers_where_it_should_scatter
        writes_on_after_the_end waits_for_all_to_end_at_once
        pads_on_the_right takes_the_last_column sees_the_first_key_only
        drops_the_one_that_reaches_p counts_up_to_p compares_logits
        decodes_token_by_token
        draws_what_cannot_be keeps_one_more subtracts_the_noise""",
        "Values are right, gradients are not": """
        follows_its_own_score_only keeps_only_the_diagonal
        detaches_the_statistics takes_the_statistics_for_constants
        forgets_the_path_through_the_variance ties_a_copy
        keys_from_the_query_matrix divides_by_torchs_std
        forgets_the_final_norm memory_one_block_early
        leaves_the_row_sum_out forgets_the_mask_going_back
        forgets_the_scale_going_back keeps_the_last_rows_alone
        lines_up_the_first_tokens_going_back""",
        "The test passes whatever the code does": """
        compares_with_itself compares_with_equals compares_only_the_shapes
        passes_on_uninitialised_memory shape_check_passes_nan
        rounds_until_it_looks_right looks_at_common_names_alone
        lets_a_nan_pass names_the_largest compares_the_parameters
        goes_by_the_order_of_definition""",
        "A count of parameters, memory or work is off": """
        takes_the_bytes_of_one_token leaves_out_the_windowed_layers
        fills_the_windows_at_once puts_a_window_in_every_layer
        makes_a_key_for_every_head
        keeps_the_full_width counts_linear_layers_only
        counts_multiply_and_add_as_one keeps_four_times_the_width
        gives_every_head_a_cache counts_the_heads_twice
        counts_the_linear_layers_alone counts_keys_for_every_head
        forgets_the_gate feeds_the_last_token_twice ties_a_copy
        does_not_expand""",
        "With guesses the text is another than without": """
        draws_from_the_target_again takes_the_distance
        takes_the_refused_one_out_alone keeps_the_likeliest_alone
        tells_another_draft_than_it_drew_from
        guesses_the_likeliest_and_tells_the_softmax
        goes_on_behind_a_refusal sees_the_siblings sees_the_parent_alone
        does_not_see_itself sees_its_children""",
        "With guesses it is right, and no faster, or not as fast as said": """
        forgets_the_free_token waits_for_two_draws_to_agree
        subtracts_the_whole_distance weighs_the_ratio_by_the_target
        takes_the_first_place guesses_the_match_itself
        compares_the_last_word_alone finds_only_what_does_not_overlap
        takes_the_mean_for_all gives_k_tokens_at_most
        calls_for_every_refusal""",
    }.items()
}
