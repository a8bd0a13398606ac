/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_mutant.h: ways to break one rule at a time, so that the harness can show that it would notice.
 * In normal builds CN_MUTANT(name) is the constant 0 and the broken branch is compiled away. With
 * CAIRN_MUTANTS defined the branch is taken while cn_mutant_active == CN_MUTANT_name; 0 breaks
 * nothing. Each line: name, the rule it breaks.
 */
#ifndef CN_MUTANT_H
#define CN_MUTANT_H

#define CN_MUTANTS(X)                                                                              \
    X(c_log_before_validate, "R1: a record is written before validation has passed")               \
    X(c_skip_validate, "section 4 step 2: reads are not validated")                                \
    X(c_validate_ignores_lock, "section 4 step 2: a locked word validates")                        \
    X(c_mark_before_flush, "R3: marks are posted before the flushes completed")                    \
    X(c_ack_before_flush, "R3: COMMITTED is returned before the flushes completed")                \
    X(c_flush_skipped, "section 4 step 3: no flush at all")                                        \
    X(c_flush_first_only, "R3: only the record at the first node is flushed")                      \
    X(c_unknown_is_aborted, "R1: ABORTED is returned although a record was posted")                \
    X(c_release_unacquired, "section 4 step 1: an abort releases locks it did not get")            \
    X(c_reuse_send_buffer, "R6: a record's buffer is written before its completion")               \
    X(c_merge_beliefs, "T13: two beliefs of one word are merged")                                  \
    X(c_skip_absence_recheck, "T1: absence after reading candidates is not checked again")         \
    X(c_reuse_sequence, "R15: the sequence of an aborted transaction is used again")               \
    X(c_wait_holding_lock, "R13: waits for a lock while holding one")                              \
    X(c_ring_past_position, "R4: ring space is used beyond the persisted position")                \
    X(c_session_continues, "R2: a transaction goes on after a reconnect")                          \
    X(c_staging_restarts, "R6: buffers of records on their way are given to others")               \
    X(c_mark_late, "R4: a mark is written although its record's place was used again")             \
    X(n_apply_unpersisted, "R11: a record is applied before this CPU made it durable")             \
    X(n_no_body_fence, "section 7: bodies are not durable before applied is")                      \
    X(n_no_applied_fence, "R8: applied is not durable before locks go")                            \
    X(n_release_before_applied, "R8: locks are released before applied is durable")                \
    X(n_no_release_fence, "R9: the position passes a volatile release")                            \
    X(n_no_redo_release, "R9: releases of applied records are not done again at start")            \
    X(n_publish_before_position, "R4: ring space is given back before the position is durable")    \
    X(n_commit_unmarked, "R3: an unmarked record that names other nodes too counts as committed")  \
    X(n_mark_unbound, "R5: any value in its place counts as the mark of a record")                 \
    X(n_position_skips, "R10: the position passes what is not applied")                            \
    X(n_tombstone_volatile, "R8: locks go before the tombstone is durable")                        \
    X(n_records_before_tombstones, "R12: records are looked at before tombstones")                 \
    X(n_present_volatile, "R11: PRESENT from a record that is not durable")                        \
    X(n_present_without_txid, "R15: PRESENT without comparing the transaction id")                 \
    X(n_abort_without_fence, "section 6: ABORTED without a fence")                                 \
    X(n_silence_aborts, "section 6: who does not answer counts as ABORTED")                        \
    X(n_no_fence, "R14: a fence that does not cut access")                                         \
    X(n_no_gap_tombstones, "R14: gaps below the closing sequence get no tombstone")                \
    X(n_no_start_revoke, "section 6: rings are scanned at start while peers can still write")      \
    X(n_no_relock, "section 6: keys of unresolved records are not locked again before serving")    \
    X(n_free_words_at_applied, "T10: words of a fenced slot are freed before all its releases")    \
    X(n_reuse_without_scrub, "section 3: a slot is handed out again before a scrub pass")          \
    X(n_grants_at_fence, "T4: granted blocks go back at a fence, before its records are released") \
    X(p_flush_changed_only, "T5: what reads right already is not flushed")                         \
    X(p_hole_ends_scan, "section 4: the scan of a ring ends at the first hole")                    \
    X(p_version_restarts, "I5: a block that is freed starts at version 0 again")                   \
    X(p_release_ahead, "a word is raised above the version of its object")                         \
    X(n_auto_apm, "section 5: a node that was told nothing says that its NIC bypasses caches")     \
    X(f_answer_unpersisted, "section 5: a flush by message is answered and nothing was persisted")

enum cn_mutant {
    CN_MUTANT_none = 0,
#define CN_X(name, rule) CN_MUTANT_##name,
    CN_MUTANTS(CN_X)
#undef CN_X
    CN_MUTANT_COUNT,
};

#ifdef CAIRN_MUTANTS
/* Weak, so that every module may include this without one of them owning it. */
__attribute__((weak)) int cn_mutant_active;
#define CN_MUTANT(name) (cn_mutant_active == CN_MUTANT_##name)
#else
#define CN_MUTANT(name) 0
#endif

#endif
