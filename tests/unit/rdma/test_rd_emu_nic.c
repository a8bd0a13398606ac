/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the watcher withstands hostile peers, on either side, and a flood; it keeps deadlines.
 * Method: raw sockets speak the transport wrongly to an endpoint of the same process.
 * Invariants: garbage gives no event to the user beyond the end of a connection he knew; no
 * descriptor, mapping or connection is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/un.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

struct frame {
    struct rd_emu_frame_wire header;
    uint8_t payload[8192];
};

static void make_frame(struct frame *f, uint32_t type, uint32_t size)
{
    memset(f, 0, sizeof(*f));
    f->header.magic = le32_make(RD_EMU_MAGIC);
    f->header.type = le16_make((uint16_t)type);
    f->header.size = le32_make(size);
}

static int raw_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct timeval timeout = {.tv_sec = 8};
    T_CHECK(fd >= 0);
    T_CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
    return fd;
}

static struct sockaddr_un raw_address(const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", text);
    return address;
}

static int raw_connect(const char *text)
{
    int fd = raw_socket();
    struct sockaddr_un address = raw_address(text);
    T_CHECK(connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void raw_send(int fd, const void *data, size_t size)
{
    (void)!send(fd, data, size, MSG_NOSIGNAL);
}

/* The other side closes; what it says before does not matter. */
static void expect_closed(int fd)
{
    uint8_t buf[8192];
    ssize_t n;
    do {
        n = recv(fd, buf, sizeof(buf), 0);
    } while (n > 0);
    assert_true(n == 0 || errno == ECONNRESET);
    (void)close(fd);
}

static int setup(void **state)
{
    struct t_net *f = calloc(1, sizeof(*f));
    f->env = *cn_env_system();
    t_net_open(f, 4, NULL);
    *state = f;
    return 0;
}

/* A socket is closed shortly before its connection counts as gone. */
static void expect_no_connections(void)
{
    struct rd_live live;
    uint64_t deadline_ns = t_now() + 5000 * T_MS;
    do {
        rd_live_get(&live);
    } while (live.connections != 0 && t_now() < deadline_ns);
    assert_int_equal(live.connections, 0);
}

static void expect_nothing(struct rd_ep *ep)
{
    struct rd_event event;
    assert_int_equal(rd_poll(ep, &event, 1), 0);
}

static void greeting__garbage__closed_without_event(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    for (int i = 0; i < 12; i++) {
        size_t size = sizeof(frame.header);
        make_frame(&frame, RD_EMU_HELLO, 0);
        switch (i) {
        case 0: size = 1; break;
        case 1: size -= 1; break;
        case 2: frame.header.magic = le32_make(1); break;
        case 3: frame.header.reserved0[1] = 1; break;
        case 4: frame.header.reserved[3] = 1; break;
        case 5: frame.header.size = le32_make(1); break;
        case 6: frame.header.size = le32_make(UINT32_MAX); break;
        case 7: frame.header.size = le32_make(49); size += 49; break;
        case 8: frame.header.size = le32_make(8000); size += 8000; break;
        case 9: frame.header.type = le16_make(RD_EMU_READY); break;
        case 10: frame.header.type = le16_make(RD_EMU_ACCEPT); break;
        case 11: frame.header.type = le16_make(99); break;
        }
        int fd = raw_connect(f->address);
        raw_send(fd, &frame, size);
        expect_closed(fd);
    }
    expect_nothing(f->node.ep);
    expect_no_connections();
    (void)t_pair(&f->node, &f->peer, f->address, NULL); /* and a good one still gets through */
}

static void greeting__descriptors_passed__dropped(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    make_frame(&frame, RD_EMU_HELLO, 5);
    memcpy(frame.payload, "hello", 5);
    int fd = raw_connect(f->address);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec iov = {&frame, sizeof(frame.header) + 5};
    struct msghdr message = {.msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
    cmsg->cmsg_level = SOL_SOCKET;
    cmsg->cmsg_type = SCM_RIGHTS;
    cmsg->cmsg_len = CMSG_LEN(sizeof(int));
    int ends[2];
    T_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    memcpy(CMSG_DATA(cmsg), &ends[1], sizeof(int));
    T_CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) > 0);
    struct rd_event event = t_expect(f->node.ep, RD_EV_CONNECT);
    assert_int_equal(event.size, 5);
    (void)close(ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody else has the write end */
    (void)close(ends[0]);
    (void)close(fd);
    assert_int_equal(t_expect(f->node.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    assert_int_equal(
        rd_accept(event.conn, &f->node.extent, 1, NULL, NULL, 0), CAIRN_E_NODE_DOWN);
    rd_conn_delete(event.conn);
}

static void asked_and_accepted__frame_out_of_place__down_protocol(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    for (int accepted = 0; accepted < 2; accepted++) {
        int fd = raw_connect(f->address);
        make_frame(&frame, RD_EMU_HELLO, 0);
        raw_send(fd, &frame, sizeof(frame.header));
        struct rd_conn *c = t_expect(f->node.ep, RD_EV_CONNECT).conn;
        if (accepted)
            assert_int_equal(rd_accept(c, &f->node.extent, 1, f->node.ring, NULL, 0), 0);
        make_frame(&frame, RD_EMU_MESSAGE, 1);
        raw_send(fd, &frame, sizeof(frame.header) + 1);
        struct rd_event event = t_expect(f->node.ep, RD_EV_DOWN);
        assert_ptr_equal(event.conn, c);
        assert_int_equal(event.status, CAIRN_E_PROTOCOL);
        rd_conn_delete(c);
        expect_closed(fd);
    }
    expect_nothing(f->node.ep);
}

static void up__malformed_message__down_protocol(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    for (int i = 0; i < 4; i++) {
        int fd = raw_connect(f->address);
        make_frame(&frame, RD_EMU_HELLO, 0);
        raw_send(fd, &frame, sizeof(frame.header));
        struct rd_conn *c = t_expect(f->node.ep, RD_EV_CONNECT).conn;
        assert_int_equal(rd_accept(c, NULL, 0, NULL, NULL, 0), 0);
        make_frame(&frame, RD_EMU_READY, 0);
        raw_send(fd, &frame, sizeof(frame.header));
        (void)t_expect(f->node.ep, RD_EV_UP);
        make_frame(&frame, RD_EMU_MESSAGE, 3);
        raw_send(fd, &frame, sizeof(frame.header) + 3);
        assert_int_equal(t_expect(f->node.ep, RD_EV_MESSAGE).size, 3);
        size_t size = sizeof(frame.header);
        switch (i) {
        case 0: make_frame(&frame, RD_EMU_MESSAGE, 0); break;
        case 1: make_frame(&frame, RD_EMU_MESSAGE, 4097); size += 4097; break;
        case 2: make_frame(&frame, RD_EMU_HELLO, 0); break;
        case 3: make_frame(&frame, RD_EMU_MESSAGE, 4); size += 3; break;
        }
        raw_send(fd, &frame, size);
        assert_int_equal(t_expect(f->node.ep, RD_EV_DOWN).status, CAIRN_E_PROTOCOL);
        rd_conn_delete(c);
        expect_closed(fd);
    }
}

static void greeting__many_silent_connections__bounded_and_timed_out(void **state)
{
    struct t_net *f = *state;
    int fds[100];
    struct rd_live live;
    for (size_t i = 0; i < CN_ARRAY_SIZE(fds); i++) {
        fds[i] = raw_connect(f->address);
        rd_live_get(&live);
        assert_true(live.connections <= 2); /* half of the node's table */
    }
    /* Most are turned away at once, the others when their time is over. */
    for (size_t i = 0; i < CN_ARRAY_SIZE(fds); i++)
        expect_closed(fds[i]);
    expect_no_connections();
    expect_nothing(f->node.ep);
    (void)t_pair(&f->node, &f->peer, f->address, NULL);
}

/* ---- a hostile node ---- */

/* Answer one connect of `peer` with the frame and `fd_count` copies of `fd`; what becomes of it. */
static int answer_with(
    struct t_net *f, const struct frame *frame, size_t size, int fd, int fd_count)
{
    char address[RD_ADDRESS_SIZE_MAX];
    struct sockaddr_un un = raw_address(t_address(address));
    int listener = raw_socket();
    T_CHECK(bind(listener, (const struct sockaddr *)&un, sizeof(un)) == 0);
    T_CHECK(listen(listener, 1) == 0);
    struct rd_conn *c = t_connect(f->peer.ep, address);
    int s = accept(listener, NULL, NULL);
    T_CHECK(s >= 0);
    uint8_t hello[128];
    T_CHECK(recv(s, hello, sizeof(hello), 0) == 16 + 5);

    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 100)];
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec iov = {(void *)(uintptr_t)frame, size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&message);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
        for (int i = 0; i < fd_count; i++)
            memcpy(CMSG_DATA(cmsg) + sizeof(int) * (size_t)i, &fd, sizeof(int));
    }
    T_CHECK(sendmsg(s, &message, MSG_NOSIGNAL) > 0);
    struct rd_event event = {.type = RD_EV_COMPLETION};
    T_CHECK(t_next(f->peer.ep, &event, 8000));
    int status = event.type == RD_EV_UP ? 0 : event.status;
    rd_conn_delete(c);
    (void)close(s);
    (void)close(listener);
    (void)unlink(address);
    return status;
}

struct answer {
    struct rd_emu_accept_wire accept;
    struct rd_emu_region_wire region[2];
};

static void fill_answer(struct frame *frame, struct answer *a)
{
    make_frame(frame, RD_EMU_ACCEPT, sizeof(*a));
    memset(a, 0, sizeof(*a));
    a->accept.pid = le32_make((uint32_t)getpid() + 1);
    a->accept.region_count = le32_make(2);
    a->accept.file_count = le32_make(1);
    a->region[0] = (struct rd_emu_region_wire){.pool_off = le64_make(T_EXTENT_OFF),
        .size = le64_make(T_EXTENT_SIZE),
        .access = le16_make(RD_ACCESS_READ)};
    a->region[1] = (struct rd_emu_region_wire){.pool_off = le64_make(T_RING_OFF),
        .size = le64_make(T_RING_SIZE),
        .access = le16_make(RD_ACCESS_WRITE),
        .durability = le16_make(RD_DURABILITY_APM),
        .ring = le16_make(1)};
}

static void break_answer(struct answer *a, int how)
{
    switch (how) {
    case 0: break; /* a good one, to see that the others fail for their own reason */
    case 1: a->accept.region_count = le32_make(3); break;
    case 2: a->accept.region_count = le32_make(UINT32_MAX); break;
    case 3: a->accept.file_count = le32_make(2); break;
    case 4: a->accept.file_count = le32_make(0x40000000); break;
    case 5: a->accept.welcome_size = le32_make(1); break;
    case 6: a->region[0].size = le64_make(0); break;
    case 7: a->region[0].size = le64_make(UINT64_MAX); break;
    case 8: a->region[0].pool_off = le64_make(UINT64_MAX - 7); break;
    case 9: a->region[0].pool_off = le64_make(T_POOL_SIZE - 8); break;
    case 10: a->region[0].access = le16_make(8); break;
    case 11: a->region[0].access = le16_make(0); break;
    case 12: a->region[0].file = le16_make(1); break;
    case 13: a->region[0].size = le64_make(T_RING_OFF + 8 - T_EXTENT_OFF); break; /* overlap */
    case 14: a->region[0] = a->region[1]; break;
    case 15: a->region[1].access = le16_make(RD_ACCESS_READ); break;
    case 16: a->region[1].size = le64_make(RD_RING_HEADER_SIZE); break;
    case 17: a->region[1].ring = le16_make(2); break;
    case 18: a->region[0].pool_off = le64_make(T_EXTENT_OFF + 4); break;
    case 19: a->region[1].durability = le16_make(RD_DURABILITY_EADR + 1); break;
    case 20: a->region[1].durability = le16_make(0); break;
    case 21: a->region[0].durability = le16_make(RD_DURABILITY_EMULATED); break;
    }
}

static void accept__hostile_node__down_and_nothing_left(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    struct answer a;
    struct rd_live before, after;
    rd_live_get(&before);
    before.descriptors += 2; /* the peer's watcher comes with the first connect */
    before.threads += 1;
    for (int how = 0; how <= 21; how++) {
        fill_answer(&frame, &a);
        break_answer(&a, how);
        memcpy(frame.payload, &a, sizeof(a));
        int status = answer_with(f, &frame, sizeof(frame.header) + sizeof(a), f->pool.fd, 2);
        assert_int_equal(status, how == 0 ? 0 : CAIRN_E_PROTOCOL);
        rd_live_get(&after);
        assert_memory_equal(&after, &before, sizeof(after));
    }
    fill_answer(&frame, &a);
    memcpy(frame.payload, &a, sizeof(a));
    const size_t size = sizeof(frame.header) + sizeof(a);
    assert_int_equal(answer_with(f, &frame, size, -1, 0), CAIRN_E_PROTOCOL);
    assert_int_equal(answer_with(f, &frame, size, f->pool.fd, 1), CAIRN_E_PROTOCOL);
    assert_int_equal(answer_with(f, &frame, size, f->pool.fd, 100), CAIRN_E_PROTOCOL);
    int ends[2];
    T_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    assert_int_equal(answer_with(f, &frame, size, ends[0], 2), CAIRN_E_PROTOCOL); /* not a file */
    (void)close(ends[0]);
    (void)close(ends[1]);
    a.region[0].file = le16_make(RD_EMU_NO_FILE); /* an address, from another process */
    a.region[0].base = le64_make(0x1000);
    memcpy(frame.payload, &a, sizeof(a));
    assert_int_equal(answer_with(f, &frame, size, f->pool.fd, 2), CAIRN_E_FABRIC);
    make_frame(&frame, RD_EMU_REJECT, 177);
    assert_int_equal(answer_with(f, &frame, 16 + 177, -1, 0), CAIRN_E_PROTOCOL);
    make_frame(&frame, RD_EMU_REJECT, 0);
    assert_int_equal(answer_with(f, &frame, 16, -1, 0), CAIRN_E_LIMIT);
    make_frame(&frame, RD_EMU_ACCEPT, 0);
    assert_int_equal(answer_with(f, &frame, 16, f->pool.fd, 1), CAIRN_E_PROTOCOL);
    make_frame(&frame, RD_EMU_MESSAGE, 8);
    assert_int_equal(answer_with(f, &frame, 24, -1, 0), CAIRN_E_PROTOCOL);
    rd_live_get(&after);
    assert_memory_equal(&after, &before, sizeof(after));
}

/* Closing with unread bytes resets the connection: the reason must not get lost. */
static void reject__hello_never_read__reason_delivered(void **state)
{
    struct t_net *f = *state;
    static struct frame frame;
    char address[RD_ADDRESS_SIZE_MAX];
    struct sockaddr_un un = raw_address(t_address(address));
    int listener = raw_socket();
    T_CHECK(bind(listener, (const struct sockaddr *)&un, sizeof(un)) == 0);
    T_CHECK(listen(listener, 1) == 0);
    struct rd_conn *c = t_connect(f->peer.ep, address);
    int s = accept(listener, NULL, NULL);
    struct pollfd readable = {.fd = s, .events = POLLIN};
    T_CHECK(poll(&readable, 1, 8000) == 1); /* the hello is here */
    make_frame(&frame, RD_EMU_REJECT, 6);
    memcpy(frame.payload, "reason", 6);
    pthread_mutex_t *lock = &emu_ep(f->peer.ep)->lock; /* the watcher sees both at once */
    T_CHECK(pthread_mutex_lock(lock) == 0);
    raw_send(s, &frame, sizeof(frame.header) + 6);
    (void)close(s);
    T_CHECK(pthread_mutex_unlock(lock) == 0);
    struct rd_event event = t_expect(f->peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, c);
    assert_int_equal(event.size, 6);
    assert_memory_equal(event.data, "reason", 6);
    (void)close(listener);
    (void)unlink(address);
}

/* ---- flood ---- */

static void send__nobody_polls__again_then_all_arrive_in_order(void **state)
{
    struct t_net *f = *state;
    struct rd_conn *passive = NULL;
    struct rd_conn *c = t_pair(&f->node, &f->peer, f->address, &passive);
    uint32_t sent = 0, received = 0;
    uint8_t message[512] = {0};
    int err;
    for (;;) { /* the ring of notices is bounded, and the kernel's buffer */
        memcpy(message, &sent, sizeof(sent));
        err = rd_send(c, message, sizeof(message));
        if (err == CAIRN_E_AGAIN) {
            const struct timespec slow = {.tv_nsec = 20000000};
            (void)nanosleep(&slow, NULL); /* the watcher may just be slow */
            err = rd_send(c, message, sizeof(message));
        }
        if (err != 0)
            break;
        sent++;
        T_CHECK(sent < 100000);
    }
    assert_int_equal(err, CAIRN_E_AGAIN);
    assert_true(sent > EMU_CONN_NOTICES);

    /* Another connection is not starved: half of the ring is left to others. */
    struct rd_conn *other = NULL;
    assert_int_equal(
        rd_connect(f->peer.ep, f->address, "other", 5, t_now() + 5000 * T_MS, &other), 0);
    struct rd_live live;
    uint64_t deadline_ns = t_now() + 5000 * T_MS;
    do {
        rd_live_get(&live);
    } while (live.connections != 4 && t_now() < deadline_ns); /* the node has taken it up */
    const struct timespec pause = {.tv_nsec = 50000000};
    (void)nanosleep(&pause, NULL);
    bool asked = false;
    while (received < 2000) {
        struct rd_event event;
        T_CHECK(t_next(f->node.ep, &event, 8000));
        if (event.type == RD_EV_CONNECT) {
            asked = true;
            assert_true(received < EMU_NOTICES);
            assert_int_equal(rd_reject(event.conn, "no", 2), 0);
            continue;
        }
        assert_int_equal(event.type, RD_EV_MESSAGE);
        assert_ptr_equal(event.conn, passive);
        assert_int_equal(event.size, sizeof(message));
        uint32_t number;
        memcpy(&number, event.data, sizeof(number));
        assert_int_equal(number, received);
        received++;
        while (sent < 2000) {
            memcpy(message, &sent, sizeof(sent));
            if (rd_send(c, message, sizeof(message)) != 0)
                break;
            sent++;
        }
        if (received == sent && sent >= 2000)
            break;
    }
    assert_true(asked);
    struct rd_event event = t_expect(f->peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, other);
    assert_int_equal(event.size, 2);
    struct rd_counters counters;
    rd_ep_counters(f->node.ep, &counters);
    assert_true(counters.syscalls > 0); /* kicks of a stalled watcher are counted */
    assert_true(counters.messages_received >= 2000);
}

static void flood__peer_deleted_with_messages_waiting__all_then_down(void **state)
{
    struct t_net *f = *state;
    struct rd_conn *passive = NULL;
    struct rd_conn *c = t_pair(&f->node, &f->peer, f->address, &passive);
    uint32_t sent = 0;
    while (sent < 150 && rd_send(c, "message", 7) == 0) /* more than one connection's share */
        sent++;
    assert_true(sent > EMU_CONN_NOTICES);
    rd_conn_delete(c);
    for (uint32_t i = 0; i < sent; i++)
        assert_int_equal(t_expect(f->node.ep, RD_EV_MESSAGE).size, 7);
    assert_int_equal(t_expect(f->node.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    expect_nothing(f->node.ep);
    rd_conn_delete(passive);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, t_net_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(greeting__garbage__closed_without_event),
        CASE(greeting__descriptors_passed__dropped),
        CASE(asked_and_accepted__frame_out_of_place__down_protocol),
        CASE(up__malformed_message__down_protocol),
        CASE(greeting__many_silent_connections__bounded_and_timed_out),
        CASE(accept__hostile_node__down_and_nothing_left),
        CASE(reject__hello_never_read__reason_delivered),
        CASE(send__nobody_polls__again_then_all_arrive_in_order),
        CASE(flood__peer_deleted_with_messages_waiting__all_then_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
