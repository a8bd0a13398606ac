/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coordinator.pml: a transaction at its coordinator: connect, read and lock, validate, log and flush,
 * acknowledge, mark; or give up, or stop. `t` is its own number throughout.
 */

#define LINKED(t, n) HAS(conn[n], SES(t))
/* R2: all nodes that it uses are reached in the session in which it began. */
#if NN == 1
#define ALL_LINKED(t) LINKED(t, 0)
#elif NN == 2
#define ALL_LINKED(t) ((!AT(USES(t), 0) || LINKED(t, 0)) && (!AT(USES(t), 1) || LINKED(t, 1)))
#else
#define ALL_LINKED(t) ((!AT(USES(t), 0) || LINKED(t, 0)) && (!AT(USES(t), 1) || LINKED(t, 1)) && \
    (!AT(USES(t), 2) || LINKED(t, 2)))
#endif
#if NN == 1
#define ALL_UP up[0]
#elif NN == 2
#define ALL_UP (up[0] && up[1])
#else
#define ALL_UP (up[0] && up[1] && up[2])
#endif

/* May the slot be handed out to this session: the one before is drained, and a scrub found none of
 * its lock words. */
#if NS == NC
#define HANDED_OUT(c) true
#else
#ifdef M_REUSE_WITHOUT_SCRUB
#define SCRUBBED true
#else
#define SCRUBBED (lk[0] == 0 && lk[NK - 1] == 0)
#endif
#if defined(EMU) && !defined(M_NO_QUARANTINE) /* and its memory is out of the old peer's reach */
#define HANDED_OUT(c) ((c) == 0 || (DRAINED(0, 0) && DRAINED(NN - 1, 0) && SCRUBBED && ENDED(0)))
#else
#define HANDED_OUT(c) ((c) == 0 || (DRAINED(0, 0) && DRAINED(NN - 1, 0) && SCRUBBED))
#endif
#endif

inline connect()
{
    printf("transaction %d: begins\n", t);
    for (x : 0 .. NN - 1) {
        if
        :: state[OF(x, SES(t))] == FREE ->
            state[OF(x, SES(t))] = OPEN;
            conn[x] = conn[x] | BIT(SES(t))
        :: else
        fi
    }
    after[t] = acked;
    x = 0
}

/* Who meets a locked key waits, unless it holds one (R13) or the connection is lost. */
#define READABLE(kk) (lk[kk] == 0 && ver[kk] == body[kk])
#ifdef M_WAIT_HOLDING_LOCK
#define WAITS(kk) (LINKED(t, HOME(kk)) && !READABLE(kk))
#else
#define WAITS(kk) (held == 0 && LINKED(t, HOME(kk)) && !READABLE(kk))
#endif
#define USE(kk) \
    :: atomic { HAS(USES(t), kk) && !HAS(held, kk) && !WAITS(kk) -> \
        if \
        :: LINKED(t, HOME(kk)) && READABLE(kk) -> \
            base[t * NK + kk] = ver[kk]; \
            held = held | BIT(kk); \
            printf("transaction %d: reads or locks key %d at version %d\n", t, kk, ver[kk]); \
            if \
            :: HAS(WRITES(t), kk) -> lk[kk] = SLOT(SES(t)) + 1 \
            :: else \
            fi \
        :: else -> goto aborting \
        fi }

#ifdef M_VALIDATE_IGNORES_LOCK
#define UNLOCKED(kk) true
#else
#define UNLOCKED(kk) (lk[kk] == 0)
#endif
#define UNCHANGED(kk) (!HAS(READS(t), kk) || (UNLOCKED(kk) && ver[kk] == base[t * NK + kk]))
#if NK == 1
#define VALIDATED UNCHANGED(0)
#elif NK == 2
#define VALIDATED (UNCHANGED(0) && UNCHANGED(1))
#elif NK == 3
#define VALIDATED (UNCHANGED(0) && UNCHANGED(1) && UNCHANGED(2))
#else
#define VALIDATED (UNCHANGED(0) && UNCHANGED(1) && UNCHANGED(2) && UNCHANGED(3))
#endif
#if defined(M_SKIP_VALIDATE) || defined(M_LOG_BEFORE_VALIDATE)
#define PASSES true
#else
#define PASSES VALIDATED
#endif

/* R4: room below what the node has published as its durable position. */
#ifdef M_RING_PAST_POSITION
#define ROOM(n) true
#else
#if defined(M_PUBLISH_BEFORE_POSITION)
#define PUBLISHED(n) pos[OF(n, SES(t))]
#else
#define PUBLISHED(n) (LOSSY -> ppos[OF(n, SES(t))] : pos[OF(n, SES(t))])
#endif
#define ROOM(n) (!PART(t, n) || next[OF(n, SES(t))] < PUBLISHED(n) + RING)
#endif
#if NN == 1
#define ALL_ROOM ROOM(0)
#elif NN == 2
#define ALL_ROOM (ROOM(0) && ROOM(1))
#else
#define ALL_ROOM (ROOM(0) && ROOM(1) && ROOM(2))
#endif

inline take_sequences()
{
    d_step {
        for (x : 0 .. NN - 1) {
            if
            :: PART(t, x) && SEQ(x, t) == 0 ->
                next[OF(x, SES(t))]++;
                SEQ(x, t) = next[OF(x, SES(t))]
            :: else
            fi
        }
        x = 0
    }
}

/* In `emu` a fence does not keep a peer from writing, only from flushing: the ring's memory is
 * quarantined. What it writes then must not count. */
#ifdef EMU
#define CAN_WRITE(n) true
#else
#define CAN_WRITE(n) LINKED(t, n)
#endif
/* One queue pair: the mark of the record that was in the place came before. */
#if NT > 1
#define PLACE_LEFT(n) (SEQ(n, TWIN(t)) == 0 || SEQ(n, TWIN(t)) >= SEQ(n, t) || \
    PLACE(n, TWIN(t)) != PLACE(n, t) || HAS(fin, TWIN(t)))
#else
#define PLACE_LEFT(n) true
#endif
#define LOG(n) \
    :: d_step { PART(t, n) && !HAS(wrote, n) && CAN_WRITE(n) && PLACE_LEFT(n) -> \
        printf("transaction %d: its record is in the ring at node %d\n", t, n); \
        rec[PLACE(n, t)] = t + 1; mark[PLACE(n, t)] = 0; wrote = wrote | BIT(n) } \
    :: d_step { HAS(wrote, n) && !HAS(flushed, n) && LINKED(t, n) -> \
        printf("transaction %d: its flush at node %d has completed\n", t, n); \
        prec[PLACE(n, t)] = (LOSSY -> rec[PLACE(n, t)] : 0); \
        pmark[PLACE(n, t)] = (LOSSY -> mark[PLACE(n, t)] : 0); \
        flushed = flushed | BIT(n) }
#define PUT_MARK(n) \
    :: d_step { HAS(wrote, n) && !ALONE(t) && CAN_WRITE(n) -> \
        printf("transaction %d: its mark is at node %d\n", t, n); \
        mark[PLACE(n, t)] = t + 1; wrote = wrote & (255 - BIT(n)) }
#define PARTS ((WRITES(t) | (WRITES(t) >> NN)) & (BIT(NN) - 1))

#define GIVE_BACK(kk) \
    if \
    :: HAS(held & WRITES(t), kk) && LINKED(t, HOME(kk)) && lk[kk] == SLOT(SES(t)) + 1 && \
       ver[kk] == base[t * NK + kk] -> lk[kk] = 0 \
    :: else \
    fi

inline acknowledge()
{
    d_step {
        printf("transaction %d: COMMITTED is returned\n", t);
        assert(!HAS(said_a, t));
        acked = acked | BIT(t);
        check_order(t);
        x = 0; y = 0
    }
}

/* R15: the sequence that a token took and nobody logs is filled by a void record (one node). */
inline fill_sequence()
{
    d_step {
        if
#ifdef M_REUSE_SEQUENCE
        :: next[OF(0, SES(t))] == SEQ(0, t) -> next[OF(0, SES(t))]--
#else
        :: LINKED(t, 0) && rec[PLACE(0, t)] == 0 -> rec[PLACE(0, t)] = t + 1; voids = voids | BIT(t)
#endif
        :: else
        fi
    }
}

proctype Tx(byte t)
{
    byte held, wrote, flushed; /* keys; nodes */

    d_step { ALL_UP && HANDED_OUT(SES(t)) && BEGINS(t) -> connect() };
#ifdef TOKENS
    take_sequences();
#endif
    do
    USE(0)
#if NK > 1
    USE(1)
#endif
#if NK > 2
    USE(2)
#endif
#if NK > 3
    USE(3)
#endif
    :: atomic { held == USES(t) && ALL_LINKED(t) && PASSES && ALL_ROOM -> take_sequences(); break }
    :: atomic { held == USES(t) && !(ALL_LINKED(t) && PASSES) -> goto aborting }
#ifdef TOKENS
    :: atomic { goto aborting }
#endif
#ifdef M_SESSION_CONTINUES
    :: d_step { held != 0 && !ALL_LINKED(t) && up[0] && DRAINED(0, SES(t)) ->
        state[OF(0, SES(t))] = OPEN; conn[0] = conn[0] | BIT(SES(t)) }
#endif
    :: atomic { STOPS(t) -> goto stopping } /* with its locks */
    od;
    do
    LOG(0)
#if NN > 1
    LOG(1)
#endif
#if NN > 2
    LOG(2)
#endif
#ifdef M_ACK_BEFORE_FLUSH
    :: atomic { wrote == PARTS -> acknowledge(); break }
#elif defined(M_LOG_BEFORE_VALIDATE)
    :: atomic { flushed == PARTS && VALIDATED -> acknowledge(); break }
    :: atomic { flushed == PARTS && !VALIDATED -> goto aborting }
#else
    :: atomic { flushed == PARTS -> acknowledge(); break }
#endif
#ifdef M_MARK_BEFORE_FLUSH
    :: d_step { HAS(wrote, 0) && mark[PLACE(0, t)] != t + 1 -> mark[PLACE(0, t)] = t + 1 }
#endif
#ifdef M_ABORT_AFTER_LOG
    :: atomic { !ALL_LINKED(t) -> goto aborting }
#endif
    :: atomic { STOPS(t) || !ALL_LINKED(t) -> goto stopping } /* UNKNOWN */
    od;
    do
    PUT_MARK(0)
#if NN > 1
    PUT_MARK(1)
#endif
#if NN > 2
    PUT_MARK(2)
#endif
    :: atomic { STOPS(t) || wrote == 0 || ALONE(t) || !ALL_LINKED(t) -> goto stopping }
    od;
aborting:
    atomic {
        GIVE_BACK(0);
#if NK > 1
        GIVE_BACK(1);
#endif
#if NK > 2
        GIVE_BACK(2);
#endif
#if NK > 3
        GIVE_BACK(3);
#endif
        printf("transaction %d: gives up\n", t);
        say_aborted(t);
#ifdef TOKENS
        fill_sequence()
#endif
    };
stopping:
    atomic {
        d_step {
            printf("transaction %d: ends\n", t);
            fin = fin | BIT(t); held = 0; wrote = 0; flushed = 0;
            for (x : 0 .. NN - 1) { y = y | SEQ(x, t) }
            for (k : 0 .. NK - 1) {
                if
                :: y == 0 && !HAS(acked, t) -> base[t * NK + k] = 0
                :: else
                fi
            }
            x = 0; y = 0; k = 0
        }
    }
}
