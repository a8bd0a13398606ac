/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * smallbank.c: the six SmallBank transactions. Which keys a transaction touches is a function of
 * its plan alone; what it does to them a function of the balances read: both are tested without a
 * cluster.
 */
#include "tools/smallbank.h"

#define HOT_ACCOUNTS 100u
#define HOT_ONE_IN 4u
#define AMOUNT_MAX 100u /* of the demo's */

const char *sb_kind_name(enum sb_kind kind)
{
    static const char *const name[SB_KIND_COUNT] = {"balance", "deposit_checking",
        "transact_savings", "amalgamate", "write_check", "send_payment"};
    return kind < SB_KIND_COUNT ? name[kind] : "?";
}

static void put64(uint8_t *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof(v));
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

void sb_value_pack(const struct sb_value *value, uint8_t bytes[SB_VALUE_SIZE])
{
    put64(bytes, (uint64_t)value->balance);
    put64(bytes + 8, (uint64_t)value->number << 32 | value->writer);
    put64(bytes + 16, value->count);
}

bool sb_value_unpack(const void *bytes, size_t size, struct sb_value *ret)
{
    const uint8_t *p = bytes;

    if (size != SB_VALUE_SIZE)
        return false;
    ret->balance = (int64_t)get64(p);
    ret->writer = (uint32_t)get64(p + 8);
    ret->number = (uint32_t)(get64(p + 8) >> 32);
    ret->count = get64(p + 16);
    return true;
}

void sb_key_pack(uint32_t key, uint8_t bytes[SB_KEY_SIZE])
{
    char text[16];

    /* Readable, so that `cairn get ... checking 00000042` works. */
    (void)snprintf(text, sizeof(text), "%08u", key / 2 % 100000000u);
    memcpy(bytes, text, SB_KEY_SIZE);
}

uint64_t sb_random(uint64_t *random)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(*random);
}

/* Both of the hot ones or both of all, as there. Each half of a number for one choice, by products:
 * a division costs more than the rest. */
static void draw_accounts(uint64_t *random, const struct sb_spread *spread, uint32_t account[2])
{
    uint64_t x = sb_random(random);
    bool hot = (x & UINT32_MAX) * spread->hot_of >> 32 < spread->hot_in &&
        spread->accounts > spread->hot;
    uint64_t among = hot ? spread->hot : spread->accounts;

    account[0] = (uint32_t)((x >> 32) * among >> 32);
    do
        account[1] = (uint32_t)((sb_random(random) >> 32) * among >> 32);
    while (account[1] == account[0]);
}

void sb_draw_spread(uint64_t *random, const struct sb_spread *spread, struct sb_plan *ret)
{
    /* In percent: amalgamate 15, balance 15, deposit 15, send 25, transact 15, write check 15. */
    static const uint8_t upto[SB_KIND_COUNT] = {15, 30, 45, 60, 75, 100};
    /* In cents, of the code that Alomari et al. published, as H-Store and FORD have them. */
    static const int16_t amount[SB_KIND_COUNT] = {[SB_DEPOSIT_CHECKING] = 130,
        [SB_TRANSACT_SAVINGS] = 2020,
        [SB_WRITE_CHECK] = 500,
        [SB_SEND_PAYMENT] = 500};
    uint64_t dice = sb_random(random) % 100;
    unsigned kind = 0;

    CAIRN_ASSERT(spread->accounts >= 2 && spread->hot >= 2);
    while (dice >= upto[kind])
        kind++;
    ret->kind = (enum sb_kind)kind;
    draw_accounts(random, spread, ret->account);
    ret->amount = amount[kind];
}

void sb_draw(uint64_t *random, uint32_t accounts, struct sb_plan *ret)
{
    const struct sb_spread spread = {
        .accounts = accounts, .hot = HOT_ACCOUNTS, .hot_in = 1, .hot_of = HOT_ONE_IN};

    sb_draw_spread(random, &spread, ret);
    ret->amount = (int64_t)(1 + sb_random(random) % AMOUNT_MAX);
    if (ret->kind == SB_TRANSACT_SAVINGS && sb_random(random) % 2 == 0)
        ret->amount = -ret->amount;
}

static void sort_touches(struct sb_touch *touch, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t j = i; j > 0; j--) {
            if ((touch[j - 1].key & ~SB_WRITTEN) <= (touch[j].key & ~SB_WRITTEN))
                break;
            struct sb_touch t = touch[j];
            touch[j] = touch[j - 1];
            touch[j - 1] = t;
        }
    }
}

uint32_t sb_touches(const struct sb_plan *plan, struct sb_touch touch[SB_TOUCHES_MAX])
{
    uint32_t a = plan->account[0], b = plan->account[1], count = 0;

    memset(touch, 0, SB_TOUCHES_MAX * sizeof(*touch));
    switch (plan->kind) {
    case SB_BALANCE:
        touch[count++].key = sb_savings(a);
        touch[count++].key = sb_checking(a);
        break;
    case SB_DEPOSIT_CHECKING: touch[count++].key = sb_checking(a) | SB_WRITTEN; break;
    case SB_TRANSACT_SAVINGS: touch[count++].key = sb_savings(a) | SB_WRITTEN; break;
    case SB_AMALGAMATE:
        touch[count++].key = sb_savings(a) | SB_WRITTEN;
        touch[count++].key = sb_checking(a) | SB_WRITTEN;
        touch[count++].key = sb_checking(b) | SB_WRITTEN;
        break;
    case SB_WRITE_CHECK:
        touch[count++].key = sb_savings(a);
        touch[count++].key = sb_checking(a) | SB_WRITTEN;
        break;
    case SB_SEND_PAYMENT:
        touch[count++].key = sb_checking(a) | SB_WRITTEN;
        touch[count++].key = sb_checking(b) | SB_WRITTEN;
        break;
    case SB_KIND_COUNT: break;
    }
    sort_touches(touch, count);
    return count;
}

static struct sb_touch *touch_of(struct sb_touch *touch, uint32_t count, uint32_t key)
{
    for (uint32_t i = 0; i < count; i++) {
        if ((touch[i].key & ~SB_WRITTEN) == key)
            return &touch[i];
    }
    cn_panic(__FILE__, __LINE__, "a plan touches a key that it does not list");
}

/* All of a's money goes to b. */
static void amalgamate(const struct sb_plan *plan, struct sb_touch *touch, uint32_t count)
{
    struct sb_touch *savings = touch_of(touch, count, sb_savings(plan->account[0]));
    struct sb_touch *checking = touch_of(touch, count, sb_checking(plan->account[0]));

    touch_of(touch, count, sb_checking(plan->account[1]))->new_balance += savings->old_balance +
        checking->old_balance;
    savings->new_balance = 0;
    checking->new_balance = 0;
}

/* An overdraft costs one more. */
static int64_t check_amount(const struct sb_plan *plan, struct sb_touch *touch, uint32_t count)
{
    int64_t total = touch_of(touch, count, sb_savings(plan->account[0]))->old_balance +
        touch_of(touch, count, sb_checking(plan->account[0]))->old_balance;

    return total < plan->amount ? plan->amount + 1 : plan->amount;
}

bool sb_apply(
    const struct sb_plan *plan, struct sb_touch *touch, uint32_t count, int64_t *ret_delta)
{
    int64_t delta = 0;

    for (uint32_t i = 0; i < count; i++)
        touch[i].new_balance = touch[i].old_balance;
    switch (plan->kind) {
    case SB_BALANCE: break;
    case SB_DEPOSIT_CHECKING:
    case SB_TRANSACT_SAVINGS:
        /* A deposit is always taken, also where a check has left less than nothing. */
        if (plan->kind == SB_TRANSACT_SAVINGS && touch[0].old_balance + plan->amount < 0)
            return false;
        delta = plan->amount;
        touch[0].new_balance += delta;
        break;
    case SB_AMALGAMATE: amalgamate(plan, touch, count); break;
    case SB_WRITE_CHECK:
        delta = -check_amount(plan, touch, count);
        touch_of(touch, count, sb_checking(plan->account[0]))->new_balance += delta;
        break;
    case SB_SEND_PAYMENT:
        if (touch_of(touch, count, sb_checking(plan->account[0]))->old_balance < plan->amount)
            return false;
        touch_of(touch, count, sb_checking(plan->account[0]))->new_balance -= plan->amount;
        touch_of(touch, count, sb_checking(plan->account[1]))->new_balance += plan->amount;
        break;
    case SB_KIND_COUNT: return false;
    }
    *ret_delta = delta;
    return true;
}

static int read_touch(struct cairn_tx *tx, const struct sb_tables *tables, struct sb_touch *touch)
{
    uint32_t key = touch->key & ~SB_WRITTEN;
    uint32_t table = key % 2 == 0 ? tables->savings : tables->checking;
    uint8_t name[SB_KEY_SIZE], bytes[SB_VALUE_SIZE + 1];
    struct sb_value value;
    size_t size = 0;
    int rc;

    sb_key_pack(key, name);
    if ((touch->key & SB_WRITTEN) != 0)
        rc = cairn_get_for_update(tx, table, name, sizeof(name), bytes, sizeof(bytes), &size);
    else
        rc = cairn_get(tx, table, name, sizeof(name), bytes, sizeof(bytes), &size);
    if (rc != 0)
        return rc;
    if (!sb_value_unpack(bytes, size, &value))
        return cn_fail(CAIRN_E_CORRUPT_ITEM, "key %u: a value of %zu bytes is not ours", key, size);
    touch->prev_writer = value.writer;
    touch->prev_number = value.number;
    touch->prev_count = (uint32_t)value.count;
    touch->old_balance = value.balance;
    return 0;
}

static int write_touch(struct cairn_tx *tx, const struct sb_tables *tables,
    const struct sb_value *stamp, const struct sb_touch *touch)
{
    uint32_t key = touch->key & ~SB_WRITTEN;
    uint32_t table = key % 2 == 0 ? tables->savings : tables->checking;
    struct sb_value value = *stamp;
    uint8_t name[SB_KEY_SIZE], bytes[SB_VALUE_SIZE];

    sb_key_pack(key, name);
    value.balance = touch->new_balance;
    value.count = (uint64_t)touch->prev_count + 1;
    sb_value_pack(&value, bytes);
    return cairn_put(tx, table, name, sizeof(name), bytes, sizeof(bytes));
}

int sb_execute(struct cairn_tx *tx, const struct sb_tables *tables, const struct sb_plan *plan,
    const struct sb_value *stamp, struct sb_touch *touch, uint32_t *ret_count, int64_t *ret_delta)
{
    uint32_t count = sb_touches(plan, touch);
    int rc = 0;

    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = read_touch(tx, tables, &touch[i]);
    if (rc != 0)
        return rc;
    if (!sb_apply(plan, touch, count, ret_delta))
        return SB_REFUSED;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if ((touch[i].key & SB_WRITTEN) != 0)
            rc = write_touch(tx, tables, stamp, &touch[i]);
    }
    *ret_count = count;
    return rc;
}
