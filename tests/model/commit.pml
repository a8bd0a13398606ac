/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * commit.pml: the commit protocol and its recovery as a Promela model, searched completely by spin:
 * locks, validation, log-as-vote, mark, apply, truncation, ring reuse, find or prevent by any
 * number of recoverers, fences, slot recycling, node restarts after process death and power
 * failure. The rules R1..R15 are those of docs/commit-protocol.md. `check` has the table of
 * scenarios (-D...) and of mutants (-DM_...), each of which breaks one rule. Here are constants,
 * state, and what is asserted; the two sides are in node.pml and coordinator.pml.
 *
 * What is modelled
 * - A key is one lockable object: its word (owner slot, version) and a body with a copy of the
 *   version. Key k lives on node k mod NN. Transaction t belongs to the session of coordinator
 *   t / NT; it writes the set W<t> of keys and only reads R<t>.
 * - What is durable has two copies: as CPU and NIC see it, and p..., as a power failure leaves it.
 *   A power failure keeps or loses every cell that differs, each by itself, a record torn; a
 *   process death loses nothing, and leaves the queue pairs alive until the restarted node cuts
 *   them.
 * - A message is a fact that anybody may learn at any time from then on, also after a restart of
 *   its reader: verdicts (said_...), PRESENT (pres). Questions come at any time, once a sequence
 *   was taken: from any participant and from whoever has the token. That is more than can happen.
 * - A coordinator may stop for ever behind any step. One that is paused, a lost connection and
 *   packets that arrive late are interleavings of the same steps.
 * - A lock word of an earlier incarnation counts as unlocked: so locks are dropped at a restart,
 *   and a lock has no durable copy.
 * - A slot epoch is named by its coordinator: its control words are its own (that is the final
 *   state which is kept); the ring's places and the slot number in lock words are shared with the
 *   next.
 *
 * How it is kept small
 * - A step is one atomic sequence, from one access to memory that others see to the next. What a
 *   node does between commutes with all others' steps: they cannot see it, for bodies lie behind a
 *   locked word, rings behind a cut access, and durable copies are read only by a restart. Crash
 *   points (CP) stand inside where a crash leaves what it leaves neither before nor behind the
 *   step.
 * - Scratch variables are `hidden`: they carry nothing from step to step.
 * - What nobody looks at any more is set to 0 (forget, forget_durable, `stopping`).
 *
 * What is asserted: one verdict of each transaction, told to whomever; acknowledged is never
 * aborted; committed transactions are strictly serializable (no cycle of dependencies and real
 * time). And when nothing can move any more: all have ended, all asked about have a verdict, all
 * rings are drained, no key is locked, and all hold exactly what the committed transactions wrote.
 *
 * What is not modelled: index growth and bucket locks, block space, pads and lengths, forced
 * verdicts, damage on media, tags that wrap, purged verdicts, views.
 */

#ifndef NN
#define NN 2 /* nodes */
#endif
#ifndef NK
#define NK NN /* keys */
#endif
#ifndef NC
#define NC 2 /* coordinators, one session each */
#endif
#ifndef NS
#define NS NC /* slots of a node */
#endif
#ifndef NT
#define NT 1 /* transactions of a session */
#endif
#ifndef RING
#define RING 1 /* records of a ring */
#endif
#ifndef POWER
#define POWER 0 /* power failures of nodes */
#endif
#ifndef KILLS
#define KILLS 0 /* process deaths of nodes */
#endif
#ifndef FENCES
#define FENCES 0 /* fences of a coordinator that lives, besides those of questions about it */
#endif
#ifndef W0 /* sets of keys that each transaction writes, and that it only reads */
#define W0 3
#endif
#ifndef W1
#define W1 3
#endif
#ifndef W2
#define W2 3
#endif
#ifndef R0
#define R0 0
#endif
#ifndef R1
#define R1 0
#endif
#ifndef R2
#define R2 0
#endif
#ifdef FIRST_STOPS /* whose coordinator may stop for ever */
#define STOPS(t) ((t) == 0)
#elif defined(NO_STOPS)
#define STOPS(t) false
#else
#define STOPS(t) true
#endif
#ifdef SERIAL /* a session's transactions one after the other, or many in flight */
#define BEGINS(t) ((t) % NT == 0 || HAS(fin, (t) - 1))
#else
#define BEGINS(t) true
#endif
#define TX (NC * NT)

#define BIT(x) (1 << (x))
#define HAS(set, x) (((set) >> (x)) & 1)
#define WRITES(t) ((t) == 0 -> W0 : ((t) == 1 -> W1 : W2))
#define READS(t) ((t) == 0 -> R0 : ((t) == 1 -> R1 : R2))
#define USES(t) (WRITES(t) | READS(t))
#define HOME(k) ((k) % NN)
#define AT(keys, n) HAS((keys) | ((keys) >> NN), n)
#define PART(t, n) AT(WRITES(t), n) /* is a participant of t */
#define SES(t) ((t) / NT)
#define TWIN(t) (SES(t) * NT + (1 - (t) % NT)) /* the other one, of two */
#define SLOT(c) ((c) % NS)
#define OF(n, c) ((n) * NC + (c)) /* a slot epoch */

/* Keys: word and body. */
byte lk[NK], ver[NK], pver[NK], body[NK], pbody[NK];

/* Rings: transaction + 1 of the record in a place (0: nothing valid), and its mark. */
byte rec[NN * NS * RING], prec[NN * NS * RING], mark[NN * NS * RING], pmark[NN * NS * RING];
#define PLACE(n, t) (((n) * NS + SLOT(SES(t))) * RING + seq[(t) * NN + (n)] % RING)

/* Slot epochs: sets of sequences, applied and tombstoned; applied position; closing sequence. */
#define FREE 0
#define OPEN 1
#define CLOSED 2
byte state[NN * NC], app[NN * NC], papp[NN * NC], tomb[NN * NC], ptomb[NN * NC];
byte pos[NN * NC], ppos[NN * NC], closing[NN * NC];

/* Nodes: which sessions reach them; whether they serve; of what they said PRESENT. */
byte conn[NN], pres[NN];
bool up[NN];

/* Sessions and transactions: next sequence; sequence at each participant; versions believed. */
byte next[NN * NC], seq[TX * NN], base[TX * NK];
byte fin, voids; /* sets: ended; logged as void */

/* What was said of transactions, and to compare with: which were acknowledged before one began. */
byte said_a, said_c, acked, after[TX];
byte powers, kills, fences;

hidden byte x, y, k;

/* Durable copies are kept only while a power failure may come: afterwards they say nothing. */
#define LOSSY (powers < POWER)

/* ---- verdicts ---- */

#define DEPENDS_ON(a, b, kk) /* b saw or replaced what a wrote, or replaced what a saw */ \
    ((HAS(WRITES(a), kk) && HAS(USES(b), kk) && base[(b) * NK + (kk)] > base[(a) * NK + (kk)]) || \
    (HAS(USES(a), kk) && HAS(WRITES(b), kk) && base[(b) * NK + (kk)] >= base[(a) * NK + (kk)]))
#if NK == 1
#define DEPENDS(a, b) DEPENDS_ON(a, b, 0)
#elif NK == 2
#define DEPENDS(a, b) (DEPENDS_ON(a, b, 0) || DEPENDS_ON(a, b, 1))
#elif NK == 3
#define DEPENDS(a, b) (DEPENDS_ON(a, b, 0) || DEPENDS_ON(a, b, 1) || DEPENDS_ON(a, b, 2))
#else
#define DEPENDS(a, b) \
    (DEPENDS_ON(a, b, 0) || DEPENDS_ON(a, b, 1) || DEPENDS_ON(a, b, 2) || DEPENDS_ON(a, b, 3))
#endif
#define BEFORE(a, b) ((a) != (b) && (HAS(after[b], a) || DEPENDS(a, b)))
#define DONE(t) HAS(said_c | acked, t)

/* t is committed: no cycle through it, of two or of three. */
inline check_order(t)
{
    for (x : 0 .. TX - 1) {
        if
        :: DONE(x) && BEFORE(t, x) ->
            for (y : 0 .. TX - 1) {
                if
                :: DONE(y) && (x == y || BEFORE(x, y)) -> assert(!BEFORE(y, t))
                :: else
                fi
            }
        :: else
        fi
    }
}
inline say_committed(t)
{
    d_step {
        assert(!HAS(said_a, t));
        if
        :: !HAS(said_c, t) ->
            said_c = said_c | BIT(t);
            printf("    node %d: transaction %d is COMMITTED\n", n, t);
            check_order(t);
            for (x : 0 .. NN - 1) { pres[x] = pres[x] & (255 - BIT(t)) }
        :: else
        fi;
        x = 0; y = 0
    }
}
inline say_aborted(t)
{
    printf("    transaction %d is ABORTED\n", t);
    assert(!HAS(said_c | acked, t));
    said_a = said_a | BIT(t)
}

#include "node.pml"
#include "coordinator.pml"

#if POWER + KILLS > 0
/* From some moment on nothing crashes any more; a crash may also be the last thing that happens. */
proctype Calm()
{
end_calm:
    atomic { fin == BIT(TX) - 1 && (powers < POWER || kills < KILLS) ->
        powers = POWER;
        kills = KILLS;
        forget_durable()
    }
}
#endif

/* When nothing moves any more. */
proctype Judge()
{
    timeout;
    d_step {
        printf("nothing moves any more\n");
        assert(fin == BIT(TX) - 1);
        for (x : 0 .. NN * NC - 1) {
            assert(state[x] != OPEN && pos[x] >= closing[x])
        }
        for (x : 0 .. TX - 1) {
            for (y : 0 .. NN - 1) { assert(SEQ(y, x) == 0 || DONE(x) || HAS(said_a, x)) }
        }
        for (k : 0 .. NK - 1) {
            y = 0;
            for (x : 0 .. TX - 1) {
                if
                :: DONE(x) && HAS(WRITES(x), k) -> y++
                :: else
                fi
            }
            assert(lk[k] == 0 && ver[k] == y && body[k] == y)
        }
    }
}

init {
    atomic {
        for (x : 0 .. NN - 1) { up[x] = true }
        x = 0;
        run Judge();
#if POWER + KILLS > 0
        run Calm();
#endif
        run Tx(0);
#if TX > 1
        run Tx(1);
#endif
#if TX > 2
        run Tx(2);
#endif
        run Node(0);
#if NN > 1
        run Node(1);
#endif
#if NN > 2
        run Node(2);
#endif
    }
}
