/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr_facts.h: facts of a host where nothing is wrong, for tests of the doctor's rules: a test
 * spoils one of them.
 */
#ifndef DR_FACTS_H
#define DR_FACTS_H

#include "tools/dr.h"

struct dr_sample {
    struct dr_facts facts;
    struct dr_device device[2]; /* the second is not in use: device_count is 1 */
    struct dr_pool pool[2];     /* the same: pool_count 0, config NULL */
    struct txn_config config;
    struct dr_report report;
};
/* A RoCE device of mlx5 with one active port; locked memory unlimited. */
void dr_sample_make(struct dr_sample *sample);
/* With a configuration of fabric rpma and a devdax pool in an eADR region. */
void dr_sample_add_pool(struct dr_sample *sample);
/* Run the rules; how often `id` was found. */
unsigned dr_sample_count(struct dr_sample *sample, const char *id);
/* The first of that id; NULL: none. Of the last run. */
const struct dr_finding *dr_sample_find(const struct dr_sample *sample, const char *id);
/* Its severity; DR_OK: none. Runs the rules. */
enum dr_severity dr_sample_severity(struct dr_sample *sample, const char *id);
/* Add a counter to the port of the first device. */
void dr_sample_counter(
    struct dr_sample *sample, const char *name, enum dr_counter_class class, uint64_t value);

#endif
