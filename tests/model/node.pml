/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node.pml: a participant: what it finds in its rings, apply, fence, find or prevent, start, crash.
 * Its steps and what they may merge: see commit.pml. `n` is the node's own number throughout.
 */

/* ---- what a node sees in its rings ---- */

#define SEQ(n, t) seq[(t) * NN + (n)]
#define IN_RING(n, t) (SEQ(n, t) != 0 && rec[PLACE(n, t)] == (t) + 1)
#ifdef M_NO_CLOSING
#define VALID(n, t) IN_RING(n, t)
#else
#define VALID(n, t) \
    (IN_RING(n, t) && (state[OF(n, SES(t))] == OPEN || SEQ(n, t) <= closing[OF(n, SES(t))]))
#endif
#define PASSED(n, t) (SEQ(n, t) <= pos[OF(n, SES(t))])
#define APPLIED(n, t) HAS(app[OF(n, SES(t))], SEQ(n, t))
#define TOMB(n, t) HAS(tomb[OF(n, SES(t))], SEQ(n, t))
#ifdef M_RECORDS_FIRST
#define DEAD(n, t) (TOMB(n, t) && !VALID(n, t))
#else
#define DEAD(n, t) TOMB(n, t)
#endif
#define UNDECIDED(n, t) (VALID(n, t) && !PASSED(n, t) && !APPLIED(n, t) && !DEAD(n, t))
#define DRAINED(n, c) (state[OF(n, c)] == CLOSED && pos[OF(n, c)] >= closing[OF(n, c)])

#ifdef M_MARK_UNBOUND
#define MARKED(n, t) (mark[PLACE(n, t)] != 0)
#else
#define MARKED(n, t) (mark[PLACE(n, t)] == (t) + 1)
#endif
#if NN == 1
#define ALONE(t) true
#define OTHERS_PRESENT(n, t) true
#elif NN == 2
#define ALONE(t) (PART(t, 0) + PART(t, 1) == 1)
#define OTHERS_PRESENT(n, t) (!PART(t, 1 - (n)) || HAS(pres[1 - (n)], t))
#else
#define ALONE(t) (PART(t, 0) + PART(t, 1) + PART(t, 2) == 1)
#define OTHERS_PRESENT(n, t) \
    (((n) == 0 || !PART(t, 0) || HAS(pres[0], t)) && \
    ((n) == 1 || !PART(t, 1) || HAS(pres[1], t)) && \
    ((n) == 2 || !PART(t, 2) || HAS(pres[2], t)))
#endif
#ifdef M_COMMIT_UNMARKED
#define SETTLED(n, t) true
#else
#define SETTLED(n, t) (ALONE(t) || MARKED(n, t) || HAS(said_c, t) || OTHERS_PRESENT(n, t))
#endif
#define CAN_APPLY(n, t) (up[n] && UNDECIDED(n, t) && !HAS(voids, t) && SETTLED(n, t))
#define CAN_BURY(n, t) (up[n] && UNDECIDED(n, t) && HAS(said_a | voids, t))

#define BEHIND(n, t, kk) (HOME(kk) == (n) && HAS(WRITES(t), kk) && ver[kk] <= base[(t) * NK + (kk)])
#if NK == 1
#define ANY_BEHIND(n, t) BEHIND(n, t, 0)
#elif NK == 2
#define ANY_BEHIND(n, t) (BEHIND(n, t, 0) || BEHIND(n, t, 1))
#elif NK == 3
#define ANY_BEHIND(n, t) (BEHIND(n, t, 0) || BEHIND(n, t, 1) || BEHIND(n, t, 2))
#else
#define ANY_BEHIND(n, t) \
    (BEHIND(n, t, 0) || BEHIND(n, t, 1) || BEHIND(n, t, 2) || BEHIND(n, t, 3))
#endif
#ifdef M_NO_REDO_RELEASE
#define UNRELEASED(n, t) (ANY_BEHIND(n, t) && !HAS(skipped[n], t))
byte skipped[NN];
#else
#define UNRELEASED(n, t) ANY_BEHIND(n, t)
#endif
#define CAN_RELEASE(n, t) \
    (up[n] && VALID(n, t) && !PASSED(n, t) && APPLIED(n, t) && UNRELEASED(n, t))

/* ---- what a node does ---- */

/* A crash may come here. */
#define CP \
    if \
    :: true \
    :: powers < POWER -> goto power_failure \
    :: kills < KILLS -> goto process_death \
    fi

inline persist_record(t)
{
    d_step {
        if
        :: LOSSY -> prec[PLACE(n, t)] = rec[PLACE(n, t)]; pmark[PLACE(n, t)] = mark[PLACE(n, t)]
        :: else
        fi
    }
}

/* R11, then the objects, then applied: each durable before the next (R8). */
inline apply(t)
{
    printf("node %d: applies transaction %d\n", n, t);
#ifndef M_APPLY_VOLATILE
    persist_record(t);
#endif
    say_committed(t);
    d_step {
        for (k : 0 .. NK - 1) {
            if
            :: HOME(k) == n && HAS(WRITES(t), k) -> body[k] = base[t * NK + k] + 1
            :: else
            fi
        }
        k = 0
    };
    CP;
#ifndef M_NO_BODY_FENCE
    d_step {
        for (k : 0 .. NK - 1) {
            if
            :: LOSSY && HOME(k) == n && HAS(WRITES(t), k) -> pbody[k] = body[k]
            :: else
            fi
        }
        k = 0
    };
#endif
    app[OF(n, SES(t))] = app[OF(n, SES(t))] | BIT(SEQ(n, t));
    CP;
#ifndef M_APPLIED_VOLATILE
    if
    :: LOSSY -> papp[OF(n, SES(t))] = papp[OF(n, SES(t))] | BIT(SEQ(n, t))
    :: else
    fi
#endif
}

/* The words, as others see them. */
inline release(t)
{
    for (k : 0 .. NK - 1) {
        if
        :: BEHIND(n, t, k) -> lk[k] = 0; ver[k] = base[t * NK + k] + 1
        :: else
        fi
    }
    k = 0
}
inline persist_words(t)
{
    for (k : 0 .. NK - 1) {
        if
        :: LOSSY && HOME(k) == n && HAS(WRITES(t), k) -> pver[k] = ver[k]
        :: else
        fi
    }
    k = 0
}

/* A tombstone, durable before the locks of what it aborts go (R8). */
inline bury(t)
{
    d_step {
        printf("node %d: tombstone for transaction %d, then unlocks\n", n, t);
        tomb[OF(n, SES(t))] = tomb[OF(n, SES(t))] | BIT(SEQ(n, t));
#ifndef M_TOMBSTONE_VOLATILE
        ptomb[OF(n, SES(t))] = (LOSSY -> tomb[OF(n, SES(t))] : 0);
#endif
        for (k : 0 .. NK - 1) {
            if
            :: HOME(k) == n && HAS(WRITES(t), k) && !HAS(voids, t) && lk[k] == SLOT(SES(t)) + 1 &&
               ver[k] == base[t * NK + k] -> lk[k] = 0
            :: else
            fi
        }
        k = 0
    }
}

/* The position passes the next sequence (R10), whose words are durable (R9). It is durable itself
 * before it is published (R4). */
#define NEXT(n, t) (up[n] && SEQ(n, t) != 0 && SEQ(n, t) == pos[OF(n, SES(t))] + 1)
#ifdef M_POSITION_SKIPS
#define CAN_PASS(n, t) (up[n] && SEQ(n, t) > pos[OF(n, SES(t))] && \
    (TOMB(n, t) || (VALID(n, t) && APPLIED(n, t) && !UNRELEASED(n, t))))
#else
#define CAN_PASS(n, t) (NEXT(n, t) && \
    (TOMB(n, t) || (VALID(n, t) && APPLIED(n, t) && !UNRELEASED(n, t))))
#endif
/* What nobody looks at below the durable position is taken away, to have fewer states. */
inline forget(t)
{
    app[OF(n, SES(t))] = app[OF(n, SES(t))] & (255 - BIT(SEQ(n, t)));
    papp[OF(n, SES(t))] = papp[OF(n, SES(t))] & (255 - BIT(SEQ(n, t)));
    if
    :: IN_RING(n, t) ->
        rec[PLACE(n, t)] = 0; prec[PLACE(n, t)] = 0;
#ifndef M_MARK_UNBOUND
        mark[PLACE(n, t)] = 0; pmark[PLACE(n, t)] = 0
#endif
    :: else
    fi
}
inline pass(t)
{
    d_step {
        printf("node %d: position passes transaction %d\n", n, t);
#ifndef M_NO_RELEASE_FENCE
        if
        :: !TOMB(n, t) -> persist_words(t)
        :: else
        fi;
#endif
        pos[OF(n, SES(t))] = SEQ(n, t);
#ifndef M_PUBLISH_BEFORE_POSITION
        ppos[OF(n, SES(t))] = (LOSSY -> pos[OF(n, SES(t))] : 0);
        forget(t)
#endif
    }
}

/* The highest sequence found; tombstones of the gaps below it. */
inline find_closing(c)
{
    d_step {
        closing[OF(n, c)] = pos[OF(n, c)];
        for (x : c * NT .. c * NT + NT - 1) {
            if
            :: IN_RING(n, x) && SEQ(n, x) > closing[OF(n, c)] -> closing[OF(n, c)] = SEQ(n, x)
            :: else
            fi
        }
        x = 0
    }
}
inline fill_gaps(c)
{
#ifndef M_NO_GAP_TOMBSTONES
    d_step {
        y = 0; /* what is there */
        for (x : c * NT .. c * NT + NT - 1) {
            if
            :: IN_RING(n, x) -> y = y | BIT(SEQ(n, x))
            :: else
            fi
        }
        for (x : 1 .. NT) {
            if
            :: x > pos[OF(n, c)] && x <= closing[OF(n, c)] && !HAS(y, x) ->
                tomb[OF(n, c)] = tomb[OF(n, c)] | BIT(x)
            :: else
            fi
        }
        x = 0; y = 0
    }
#else
    skip
#endif
}
inline persist_session(c)
{
    d_step {
        for (x : c * NT .. c * NT + NT - 1) {
            if
            :: IN_RING(n, x) && !PASSED(n, x) -> persist_record(x)
            :: else
            fi
        }
        x = 0
    }
}

/* What a scan found becomes the epoch's end. Header and tombstones are made durable by one fence,
 * so a crash may find either without the other. */
inline seal(c)
{
    printf("node %d: ends the session of coordinator %d\n", n, c);
    find_closing(c);
    fill_gaps(c);
    if
    :: LOSSY && tomb[OF(n, c)] != ptomb[OF(n, c)] ->
        CP; /* some of the tombstones, no header */
        state[OF(n, c)] = CLOSED;
        CP; /* the header, some of the tombstones */
        ptomb[OF(n, c)] = tomb[OF(n, c)]
    :: LOSSY && tomb[OF(n, c)] == ptomb[OF(n, c)] -> state[OF(n, c)] = CLOSED
    :: !LOSSY -> state[OF(n, c)] = CLOSED
    fi
}

/* R14. */
inline fence(c)
{
#ifndef M_NO_FENCE
    conn[n] = conn[n] & (255 - BIT(c));
#endif
    persist_session(c);
    seal(c)
}

/* Find or prevent. Each line is news, else the search would not come to rest. */
#define ASKED(n, t) (up[n] && SEQ(n, t) != 0)
#define SAYS_ABORTED(n, t) (ASKED(n, t) && DEAD(n, t) && !HAS(said_a, t))
#define SAYS_COMMITTED(n, t) (ASKED(n, t) && !DEAD(n, t) && !HAS(said_c, t) && \
    (PASSED(n, t) || (VALID(n, t) && APPLIED(n, t))))
#define SAYS_PRESENT(n, t) (!ALONE(t) && ASKED(n, t) && UNDECIDED(n, t) && !HAS(voids, t) && \
    !HAS(pres[n] | said_c, t))
#define PREVENTS(n, t) (ASKED(n, t) && !DEAD(n, t) && !PASSED(n, t) && !VALID(n, t) && \
    OTHER_THERE(n, t) && (state[OF(n, SES(t))] == OPEN || !HAS(said_a, t)))
/* R15: a record of another transaction at that sequence answers for itself, not for t. */
#if NT > 1
#define OTHER_THERE(n, t) !(SEQ(n, TWIN(t)) == SEQ(n, t) && VALID(n, TWIN(t)))
#else
#define OTHER_THERE(n, t) true
#endif

inline find_or_prevent(t)
{
#ifdef M_ABORT_WITHOUT_FENCE
    say_aborted(t)
#else
#ifdef M_ANSWER_FIRST
    if
    :: !HAS(said_a, t) -> say_aborted(t)
    :: else -> fence(SES(t))
    fi
#else
#ifdef M_ANSWER_VOLATILE
    conn[n] = conn[n] & (255 - BIT(SES(t)));
    say_aborted(t);
    CP;
#endif
    if
    :: state[OF(n, SES(t))] == OPEN -> fence(SES(t))
    :: else
    fi;
    if /* once more */
    :: VALID(n, t)
    :: else -> say_aborted(t)
    fi
#endif
#endif
}

/* Opening is recovery. Nobody is answered before it is done (R12). */
inline persist_control(c)
{
    d_step {
        if
        :: LOSSY ->
            papp[OF(n, c)] = app[OF(n, c)];
            ptomb[OF(n, c)] = tomb[OF(n, c)];
            ppos[OF(n, c)] = pos[OF(n, c)]
        :: else
        fi
    }
}
inline restart_session(c)
{
    persist_control(c);
    if
    :: state[OF(n, c)] == OPEN -> persist_session(c); seal(c)
    :: state[OF(n, c)] == CLOSED ->
        persist_session(c); fill_gaps(c); persist_control(c)
    :: else
    fi
}
inline redo_and_relock()
{
    d_step {
        for (k : 0 .. NK - 1) {
            if
            :: HOME(k) == n -> lk[k] = 0
            :: else
            fi
        }
        k = 0;
#ifndef M_NO_REDO_RELEASE
        for (x : 0 .. TX - 1) {
            if
            :: VALID(n, x) && !PASSED(n, x) && APPLIED(n, x) -> release(x); persist_words(x)
            :: else
            fi
        }
#else
        for (x : 0 .. TX - 1) {
            if
            :: VALID(n, x) && !PASSED(n, x) && APPLIED(n, x) -> skipped[n] = skipped[n] | BIT(x)
            :: else
            fi
        }
#endif
#ifndef M_NO_RELOCK
        for (x : 0 .. TX - 1) {
            for (k : 0 .. NK - 1) {
                if
                :: UNDECIDED(n, x) && !HAS(voids, x) && HOME(k) == n && HAS(WRITES(x), k) &&
                   ver[k] == base[x * NK + k] -> lk[k] = SLOT(SES(x)) + 1
                :: else
                fi
            }
        }
#endif
        x = 0; k = 0
    }
}

/* A power failure keeps or loses each cell by itself; a word may stop at any value between. */
inline lose_cells()
{
    conn[n] = 0;
    for (x : n * NS * RING .. (n + 1) * NS * RING - 1) {
        if
        :: rec[x] != prec[x] ->
            if
            :: prec[x] = rec[x]
            :: rec[x] = prec[x]
            :: rec[x] = 0; prec[x] = 0 /* torn */
            fi
        :: else
        fi;
        if
        :: mark[x] != pmark[x] -> if :: pmark[x] = mark[x] :: mark[x] = pmark[x] fi
        :: else
        fi
    }
    for (x : n * NC .. (n + 1) * NC - 1) {
        for (y : 1 .. NT) {
            if
            :: HAS(app[x] ^ papp[x], y) ->
                if :: papp[x] = papp[x] ^ BIT(y) :: app[x] = app[x] ^ BIT(y) fi
            :: else
            fi;
            if
            :: HAS(tomb[x] ^ ptomb[x], y) ->
                if :: ptomb[x] = ptomb[x] ^ BIT(y) :: tomb[x] = tomb[x] ^ BIT(y) fi
            :: else
            fi
        }
        if
        :: pos[x] != ppos[x] -> if :: ppos[x] = pos[x] :: pos[x] = ppos[x] fi
        :: else
        fi
    }
    for (k : 0 .. NK - 1) {
        if
        :: HOME(k) == n ->
            do
            :: pver[k] < ver[k] -> pver[k]++
            :: break
            od;
            ver[k] = pver[k];
            do
            :: pbody[k] < body[k] -> pbody[k]++
            :: break
            od;
            body[k] = pbody[k]
        :: else
        fi
    }
    if
    :: powers == POWER -> forget_durable()
    :: else
    fi;
    x = 0; y = 0; k = 0
}
inline forget_durable()
{
    d_step {
        for (x : 0 .. NN * NS * RING - 1) { prec[x] = 0; pmark[x] = 0 }
        for (x : 0 .. NN * NC - 1) { papp[x] = 0; ptomb[x] = 0; ppos[x] = 0 }
        for (k : 0 .. NK - 1) { pver[k] = 0; pbody[k] = 0 }
        x = 0; k = 0
    }
}

#define ENDED(c) (((fin >> ((c) * NT)) & (BIT(NT) - 1)) == BIT(NT) - 1)
#ifdef M_FREE_EARLY
#define LETS_GO(n, c) (state[OF(n, c)] == FREE || state[OF(n, c)] == CLOSED)
#else
#define LETS_GO(n, c) (state[OF(n, c)] == FREE || DRAINED(n, c))
#endif
/* A word that an ended owner left: freed when all records of its slot are released (R13). */
#if NS == NC
#define MAY_FREE(n, kk) (lk[kk] != 0 && LETS_GO(n, lk[kk] - 1))
#else /* one slot, of two coordinators in turn */
#define MAY_FREE(n, kk) (lk[kk] != 0 && LETS_GO(n, 0) && LETS_GO(n, 1))
#endif

#define OF_TX(t) \
    :: atomic { CAN_APPLY(n, t) -> apply(t) } \
    :: d_step { CAN_RELEASE(n, t) -> \
        printf("node %d: releases the words of transaction %d\n", n, t); release(t) } \
    :: atomic { CAN_PASS(n, t) -> pass(t) } \
    :: atomic { CAN_BURY(n, t) -> bury(t) } \
    :: atomic { SAYS_ABORTED(n, t) -> ANSWERS(t); say_aborted(t) } \
    :: atomic { SAYS_COMMITTED(n, t) -> ANSWERS(t); say_committed(t) } \
    :: atomic { SAYS_PRESENT(n, t) -> present(t) } \
    :: atomic { PREVENTS(n, t) -> ANSWERS(t); find_or_prevent(t) }
#define ANSWERS(t) printf("node %d: is asked about transaction %d\n", n, t)
inline present(t)
{
    printf("node %d: says PRESENT of transaction %d\n", n, t);
#ifndef M_PRESENT_VOLATILE
    persist_record(t);
#endif
    pres[n] = pres[n] | BIT(t)
}
#define OF_SESSION(c) \
    :: atomic { up[n] && state[OF(n, c)] == OPEN && ENDED(c) -> fence(c) } \
    :: atomic { up[n] && state[OF(n, c)] == OPEN && !ENDED(c) && fences < FENCES -> \
        fences++; fence(c) }
#define OF_KEY(kk) :: d_step { up[n] && HOME(kk) == n && MAY_FREE(n, kk) -> \
    printf("node %d: frees key %d\n", n, kk); lk[kk] = 0 }

proctype Node(byte n)
{
end_idle:
    do
    OF_TX(0)
#if TX > 1
    OF_TX(1)
#endif
#if TX > 2
    OF_TX(2)
#endif
    OF_SESSION(0)
#if NC > 1
    OF_SESSION(1)
#endif
#if NC > 2
    OF_SESSION(2)
#endif
    OF_KEY(0)
#if NK > 1
    OF_KEY(1)
#endif
#if NK > 2
    OF_KEY(2)
#endif
#if NK > 3
    OF_KEY(3)
#endif
#ifdef M_PUBLISH_BEFORE_POSITION
    :: d_step { up[n] && ppos[OF(n, 0)] != pos[OF(n, 0)] -> ppos[OF(n, 0)] = pos[OF(n, 0)] }
#endif
    :: atomic { powers < POWER ->
power_failure:
        printf("node %d: POWER FAILURE\n", n);
        powers++;
        lose_cells();
        up[n] = false
    }
    :: atomic { up[n] && kills < KILLS ->
process_death:
        printf("node %d: PROCESS DEATH\n", n);
        kills++;
        up[n] = false
    }
    :: atomic { !up[n] ->
        printf("node %d: starts\n", n);
#ifndef M_NO_START_REVOKE
        conn[n] = 0;
#endif
        restart_session(0);
#if NC > 1
        restart_session(1);
#endif
#if NC > 2
        restart_session(2);
#endif
        redo_and_relock();
        up[n] = true
    }
    od
}
