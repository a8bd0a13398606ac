/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the wire format of version 1 stays what it is, byte for byte.
 * Method: structs with distinct values against golden bytes; sizes and offsets are static asserts
 * of rd_wire_check.c already.
 * Invariants: little-endian, no padding.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_wire.h"

static void hello__golden__same_bytes(void **state)
{
    (void)state;
    const struct rd_hello_wire h = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .version = le16_make(RD_WIRE_VERSION),
        .role = le16_make(RD_ROLE_NODE),
        .cluster = {{0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
        .view = le32_make(0x01020304),
        .node = le16_make(0x0506),
        .from_node = le16_make(0x0708),
    };
    const uint8_t golden[48] = {'C', 'N', 'W', '1', 1, 0, 2, 0, 0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
        11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 6, 5, 8, 7};
    assert_int_equal(sizeof(h), sizeof(golden));
    assert_memory_equal(&h, golden, sizeof(golden));
}

static void message__golden__same_bytes(void **state)
{
    (void)state;
    const struct rd_message_wire m = {
        .magic = le32_make(RD_WIRE_MAGIC),
        .type = le16_make(RD_MSG_ANSWER),
        .size = le16_make(56),
        .id = le32_make(0x0a0b0c0d),
        .status = le32_make(20009),
    };
    const uint8_t golden[16] = {
        'C', 'N', 'W', '1', 16, 0, 56, 0, 0x0d, 0x0c, 0x0b, 0x0a, 0x29, 0x4e, 0, 0};
    assert_memory_equal(&m, golden, sizeof(golden));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello__golden__same_bytes),
        cmocka_unit_test(message__golden__same_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
