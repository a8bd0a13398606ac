/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_live.c: a connection of role TOOL: it has no slot, gets no memory, only asks.
 */
#include "tools/tl_live.h"

#include "rdma/rd.h"
#include "rdma/rd_wire.h"

#define DEADLINE_NS UINT64_C(3000000000)
#define REQUEST_ID 1u

struct live {
    struct rd_fabric *fabric;
    struct rd_ep *ep;
    struct rd_conn *conn;
    const char *address;
    uint64_t deadline_ns;
};

/* Wait for one event. */
static int next_event(struct live *l, struct rd_event *ret)
{
    while (rd_poll(l->ep, ret, 1) == 0) {
        if (cn_now_ns(cn_env_system()) >= l->deadline_ns)
            return cn_fail(CAIRN_E_TIMEOUT, "%s: the node does not answer", l->address);
        rd_ep_arm(l->ep);
        if (rd_poll(l->ep, ret, 1) != 0)
            return 0;
        rd_ep_sleep(l->ep, l->deadline_ns);
    }
    return 0;
}

static int fail_down(const struct live *l, const struct rd_event *event)
{
    int rc;

    if (event->size == sizeof(struct rd_refusal_wire)) {
        rc = rd_wire_refusal(event->data, event->size);
        return cn_fail_context(rc, "%s: refused: ", l->address);
    }
    rc = event->status != 0 ? event->status : CAIRN_E_NODE_DOWN;
    if (event->text != NULL)
        return cn_fail(rc, "%s: %s", l->address, event->text);
    return cn_fail(rc,
        "%s: the node cannot be reached (%s); is it running, and is this its address?", l->address,
        cairn_error_name(rc));
}

static int connect_tool(struct live *l, const struct cn_uuid *cluster, uint16_t node)
{
    struct rd_hello_wire hello = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make(RD_ROLE_TOOL),
        .cluster = *cluster,
        .view = le32_make(1),
        .node = le16_make(node),
    };
    struct rd_event event;
    int rc;

    rc = rd_connect(l->ep, l->address, &hello, sizeof(hello), l->deadline_ns, &l->conn);
    if (rc == 0)
        rc = next_event(l, &event);
    if (rc != 0)
        return rc;
    if (event.type == RD_EV_DOWN)
        return fail_down(l, &event);
    if (event.type != RD_EV_UP)
        return cn_fail(CAIRN_E_PROTOCOL, "%s: an event out of place", l->address);
    if (node == 0 && event.size == sizeof(struct rd_welcome_wire))
        node = le16_get(((const struct rd_welcome_wire *)event.data)->node);
    return rd_wire_check_welcome(event.data, event.size, node, false);
}

static int parse_reply(const struct live *l, const struct rd_event *event, json_t **ret_stats)
{
    const struct rd_message_wire *m = event->data;
    json_error_t error;
    int rc = rd_wire_check(event->data, event->size);

    if (rc != 0)
        return rc;
    if (le16_get(m->type) != RD_MSG_STATS_REPLY || le32_get(m->id) != REQUEST_ID)
        return cn_fail(CAIRN_E_PROTOCOL, "%s: answered something else", l->address);
    if (le32_get(m->status) != 0)
        return cn_fail(-(int)le32_get(m->status), "%s: has no statistics: %s", l->address,
            cairn_strerror(-(int)le32_get(m->status)));
    *ret_stats = json_loadb((const char *)(m + 1), le16_get(m->size), 0, &error);
    if (*ret_stats == NULL || !json_is_object(*ret_stats))
        return cn_fail(CAIRN_E_PROTOCOL, "%s: statistics are not JSON: %s", l->address, error.text);
    return 0;
}

static int ask(struct live *l, json_t **ret_stats)
{
    struct rd_message_wire request = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(RD_MSG_STATS),
        .id = le32_make(REQUEST_ID),
    };
    struct rd_event event;
    int rc = rd_send(l->conn, &request, sizeof(request));

    for (;;) {
        if (rc == 0)
            rc = next_event(l, &event);
        if (rc != 0)
            return rc;
        if (event.type == RD_EV_DOWN)
            return fail_down(l, &event);
        if (event.type == RD_EV_MESSAGE)
            return parse_reply(l, &event, ret_stats);
    }
}

int tl_live_stats(const struct tl_live_node *target, json_t **ret_stats)
{
    struct live l = {.address = target->address};
    const char *fabric = target->fabric;
    const struct rd_ep_config config = {
        .env = cn_env_system(),
        .connections_max = 1,
        .outstanding_max = 8,
        .memory_size = 4096, /* nothing is read or written: none of it is for rings */
        .name = "inspect",
    };

    if (fabric == NULL)
        fabric = txn_is_ip_address(target->address) ? "rpma" : "emu";
    int rc = rd_fabric_open(fabric, target->options, &l.fabric);
    if (rc != 0)
        return rc;
    l.deadline_ns = cn_now_ns(cn_env_system()) + DEADLINE_NS;
    rc = rd_ep_open(l.fabric, &config, &l.ep);
    if (rc == 0) {
        rc = connect_tool(&l, &target->cluster, target->node);
        if (rc == 0)
            rc = ask(&l, ret_stats);
        if (l.conn != NULL)
            rd_conn_delete(l.conn);
        rd_ep_close(l.ep);
    }
    rd_fabric_delete(l.fabric);
    return rc;
}
