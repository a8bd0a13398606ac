/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dr.h: `cairn doctor`, inside. Facts are read from what the system shows (dr_read, dr_device,
 * dr_port, dr_host, dr_pool, dr_live), rules turn facts into findings (dr_rules*), dr_print says
 * them.
 *
 * Invariants: every file is read through a root, so that a tree captured on another machine can be
 * examined, and a link in it cannot lead outside. Content is hostile: bounded, printable ASCII or
 * it counts as malformed. A name from the tree is never put into a path or a command unless it is
 * a plain name (dr_name_is_plain). Rules read facts only: no rule touches the system.
 */
#ifndef DR_H
#define DR_H

#include "tools/tl.h"
#include "txn/txn_config.h"

#define DR_NAME_SIZE 64u
#define DR_TEXT_SIZE 64u
#define DR_PATH_SIZE 256u
#define DR_DEVICES_MAX 64u
#define DR_PORTS_MAX 8u
#define DR_GIDS_MAX 32u
#define DR_NETDEVS_MAX 8u
#define DR_COUNTERS_MAX 48u
#define DR_PARAMS_MAX 24u
#define DR_REGIONS_MAX 32u
#define DR_OWNERS_MAX 64u
#define DR_MALFORMED_MAX 16u
#define DR_FINDINGS_MAX 512u

/* ---- reading (dr_read.c) ---- */

struct dr_root {
    int fd;
    bool live;              /* this machine: system calls and verbs tell more than files */
    unsigned malformed_count;
    char malformed[DR_MALFORMED_MAX][DR_PATH_SIZE]; /* the first of them */
};
/* `path` NULL: this machine. Errors: -errno. */
CN_MUST_CHECK int dr_root_open(const char *path, struct dr_root *ret_root);
void dr_root_close(struct dr_root *root);
/* One line of text, without blanks at its ends. `text` is always a string, "" where there is none.
 * Returns its length or -errno: -ENOENT, -EILSEQ and -EFBIG (malformed: noted in the root), and
 * what reading gave. */
int dr_read(struct dr_root *root, char *text, size_t size, const char *format, ...)
    CN_PRINTF(4, 5);
/* A number, decimal or 0x. False: there is none; *ret_value is untouched. */
bool dr_read_u64(struct dr_root *root, uint64_t *ret_value, const char *format, ...)
    CN_PRINTF(3, 4);
/* A whole file of at most 1 MiB; the caller frees it. NULL: there is none. Bytes that are not
 * printable are '?' in it. */
char *dr_read_file(struct dr_root *root, const char *path);
/* Plain names in a folder, sorted as numbers are, at most `max`; others are noted. */
unsigned dr_list(struct dr_root *root, char (*names)[DR_NAME_SIZE], unsigned max,
    const char *format, ...) CN_PRINTF(4, 5);
/* Where a link leads, as it is written. False: no link. */
bool dr_link(struct dr_root *root, char *text, size_t size, const char *format, ...)
    CN_PRINTF(4, 5);
const char *dr_base_name(const char *path);
bool dr_exists(struct dr_root *root, const char *format, ...) CN_PRINTF(2, 3);
/* Open a path for fstat() only (O_PATH). -errno. */
int dr_open_path(struct dr_root *root, const char *path);
/* Letters, digits and _ . : - alone, not empty, not "." or "..", not beginning with '-'. */
bool dr_name_is_plain(const char *name);
/* Copy with everything but printable ASCII as '?'. */
void dr_copy_printable(char *to, size_t size, const char *from);

/* ---- facts ---- */

enum dr_answer { DR_UNKNOWN, DR_NO, DR_YES };

enum dr_transport { DR_OTHER, DR_INFINIBAND, DR_ROCE, DR_IWARP };
enum dr_link_layer { DR_LINK_UNKNOWN, DR_LINK_INFINIBAND, DR_LINK_ETHERNET };
enum dr_state { DR_STATE_DOWN = 1, DR_STATE_INIT = 2, DR_STATE_ARMED = 3, DR_STATE_ACTIVE = 4 };
enum dr_phys { DR_PHYS_SLEEP = 1, DR_PHYS_POLLING = 2, DR_PHYS_DISABLED = 3, DR_PHYS_UP = 5 };

struct dr_gid {
    unsigned index;
    char gid[40];
    char type[16]; /* "RoCE v2" */
    char netdev[16];
    bool link_local;
};
struct dr_netdev {
    char name[16];
    char operstate[16];
    uint64_t mtu;       /* 0: not known */
    int ecn_np, ecn_rp; /* bit per priority; -1: not shown */
};

enum dr_counter_class {
    DR_COUNT_PACKETS, /* what the others are measured by */
    DR_COUNT_GIVEN_UP,
    DR_COUNT_LOSS,
    DR_COUNT_DISCARD,
    DR_COUNT_RNR,
    DR_COUNT_ACCESS,
    DR_COUNT_LINK,
    DR_COUNT_DOWNED,
    DR_COUNT_ECN,
    DR_COUNT_CLASSES,
};
struct dr_counter {
    const char *name;
    enum dr_counter_class class;
    uint64_t value;
};

struct dr_port {
    unsigned number;
    enum dr_link_layer link;
    unsigned state, phys; /* 0: not known */
    char state_text[24], phys_text[24], rate[40];
    uint64_t rate_mbps; /* 0: not known */
    uint64_t lid, sm_lid;
    bool sm_known;
    unsigned gid_count, roce1, roce2, routable; /* routable: v2 and not link-local */
    unsigned gid_kept;
    struct dr_gid gid[DR_GIDS_MAX];
    unsigned netdev_count;
    struct dr_netdev netdev[DR_NETDEVS_MAX];
    unsigned counter_count; /* known ones */
    struct dr_counter counter[DR_COUNTERS_MAX];
    char roce_mode[24]; /* of rdma_cm; "" not shown */
    int tos;            /* of rdma_cm; -1 not shown */
    enum dr_answer congestion_control; /* irdma */
    unsigned mtu_active;               /* live; 0: not known */
};

struct dr_param { char name[40], value[24]; };

struct dr_device {
    char name[DR_NAME_SIZE];
    char node_type[32], node_desc[DR_TEXT_SIZE], hca_type[DR_TEXT_SIZE], firmware[DR_TEXT_SIZE];
    char driver[32]; /* of the RDMA device, as the module is called; "" not known */
    char pci[16];    /* address; "" none */
    enum dr_transport transport;
    bool software;
    unsigned speed, speed_max; /* PCIe, in 0.1 GT/s; 0: not known */
    unsigned width, width_max;
    int64_t numa; /* -1: none */
    char uverbs[DR_NAME_SIZE];
    enum dr_answer atomics, odp;
    enum dr_answer opened; /* by verbs; unknown: not tried */
    char open_error[160];
    uint64_t max_qp_wr, max_mr_size, max_rd_atomic; /* live; 0: not known */
    unsigned param_count; /* of congestion control, from debugfs */
    struct dr_param param[DR_PARAMS_MAX];
    unsigned port_count;
    struct dr_port port[DR_PORTS_MAX];
};

struct dr_region { char name[DR_NAME_SIZE], domain[32]; };
struct dr_namespace { char name[DR_NAME_SIZE], mode[16]; uint64_t size; };
struct dr_nvdimm { char name[DR_NAME_SIZE], flags[128]; };

struct dr_host {
    char release[DR_TEXT_SIZE];
    unsigned kernel; /* major * 1000 + minor; 0: not known */
    enum dr_answer memlock_known;
    uint64_t memlock, memlock_hard; /* UINT64_MAX: unlimited */
    enum dr_answer ipc_lock;        /* CAP_IPC_LOCK */
    uint64_t memory;                /* bytes of RAM; 0: not known */
    bool huge_known;
    uint64_t huge_total, huge_free, huge_size; /* bytes each page */
    char thp[16];                              /* always, madvise, never; "" not known */
    bool uverbs;              /* the module's interface is there */
    enum dr_answer rdma_cm;   /* the same; unknown: the tree does not show such devices */
    char cm_error[DR_PATH_SIZE]; /* live: this user may not open it */
    unsigned region_count, namespace_count, nvdimm_count;
    struct dr_region region[DR_REGIONS_MAX];
    struct dr_namespace namespace[DR_REGIONS_MAX];
    struct dr_nvdimm nvdimm[DR_REGIONS_MAX];
};

enum dr_pool_kind {
    DR_POOL_UNKNOWN,
    DR_POOL_DEVDAX,
    DR_POOL_FSDAX,
    DR_POOL_TMPFS,
    DR_POOL_FILE,
    DR_POOL_OTHER, /* a folder, another device */
};
struct dr_pool {
    uint16_t node;
    char path[4096];
    enum dr_pool_kind kind; /* where it is missing: what a file there would be */
    bool exists;
    char fs[24];
    char denied[64]; /* live: why this user cannot use it */
    uint64_t size;   /* bytes; of the pool, or what the configuration will make */
    uint64_t pinned; /* what a node locks for it */
    enum txn_persistence persistence; /* as the configuration declares */
    char region[DR_NAME_SIZE], domain[32];
    uint64_t align; /* devdax; 0 not known */
    int64_t numa;
};

enum dr_object { DR_OBJECT_CTX, DR_OBJECT_PD, DR_OBJECT_MR, DR_OBJECT_CQ, DR_OBJECT_QP,
    DR_OBJECT_CM_ID, DR_OBJECT_KINDS };
struct dr_owner {
    uint64_t pid; /* 0: not told */
    char name[32];
    uint64_t count[DR_OBJECT_KINDS];
    uint64_t bytes; /* of memory regions */
    bool gone;
};

struct dr_facts {
    bool live;
    const struct txn_config *config; /* NULL: none given */
    bool one_node;                   /* pools: of one node, which is meant to run here */
    char only[DR_NAME_SIZE];         /* the one device that is meant; "" all */
    unsigned device_count, device_all; /* device_all: before `only` */
    struct dr_device *device;
    struct dr_host host;
    unsigned pool_count;
    struct dr_pool *pool;
    enum dr_answer owners_known;
    char owners_error[160];
    unsigned owner_count;
    struct dr_owner owner[DR_OWNERS_MAX];
    unsigned malformed_count;
    char malformed[DR_MALFORMED_MAX][DR_PATH_SIZE];
};

struct dr_options {
    const char *root;   /* NULL: this machine */
    const char *config; /* NULL: none */
    const char *device; /* NULL: all */
    uint64_t node;      /* 0: all of the configuration */
    uint64_t pid;       /* whose limits; 0: our own */
};
/* Errors: -errno, CAIRN_E_CONFIG. Owner: caller gives the facts back to dr_facts_free(). */
CN_MUST_CHECK int dr_facts_read(const struct dr_options *options, struct dr_facts **ret_facts);
void dr_facts_free(struct dr_facts **facts);

void dr_device_read(struct dr_root *root, const char *name, struct dr_device *ret);
void dr_port_read(
    struct dr_root *root, const struct dr_device *device, unsigned number, struct dr_port *ret);
/* The largest RoCE path MTU that a netdev's MTU allows: 256..4096; 0: none. */
unsigned dr_path_mtu(uint64_t netdev_mtu);
uint64_t dr_port_count(const struct dr_port *port, enum dr_counter_class class);
void dr_host_read(struct dr_root *root, uint64_t pid, struct dr_host *ret);
void dr_pool_read(struct dr_root *root, const struct dr_host *host,
    const struct txn_config *config, const struct txn_config_node *node, struct dr_pool *ret);
/* What only a running system tells: verbs, and the kernel's list of RDMA objects. */
void dr_live_read(struct dr_facts *facts);
/* One answer of `rdma -j resource show KIND`. False: not that. */
bool dr_live_parse(struct dr_facts *facts, enum dr_object kind, const char *json);

/* ---- findings ---- */

enum dr_severity { DR_OK, DR_NOTE, DR_WARNING, DR_ERROR };
const char *dr_severity_name(enum dr_severity severity);

struct dr_finding {
    enum dr_severity severity;
    const char *id;
    unsigned rank; /* of its rule, then of its making: the order within a severity */
    char object[DR_PATH_SIZE];
    char text[400], why[400], remedy[320];
};
struct dr_report {
    unsigned count, lost; /* lost: more than DR_FINDINGS_MAX */
    struct dr_finding finding[DR_FINDINGS_MAX];
};

/* What a rule looks at; members of wider scopes are set too. */
struct dr_subject {
    const struct dr_facts *facts;
    const struct dr_device *device;
    const struct dr_port *port;
    const struct dr_pool *pool;
};
enum dr_scope { DR_SCOPE_HOST, DR_SCOPE_DEVICE, DR_SCOPE_PORT, DR_SCOPE_POOL };
struct dr_rule_context;
struct dr_rule {
    const char *id;
    enum dr_scope scope;
    bool rdma; /* matters only where RDMA is used: else a note at most */
    void (*check)(struct dr_rule_context *c, const struct dr_subject *s);
};
struct dr_rule_context {
    const struct dr_rule *rule;
    const struct dr_subject *subject;
    struct dr_report *report;
    struct dr_finding spare; /* where a finding goes that has no room */
};
/* For rules: make a finding with its text, then say why, and what mends it. */
struct dr_finding *dr_find(
    struct dr_rule_context *c, enum dr_severity severity, const char *format, ...) CN_PRINTF(3, 4);
void dr_why(struct dr_finding *finding, const char *format, ...) CN_PRINTF(2, 3);
void dr_mend(struct dr_finding *finding, const char *format, ...) CN_PRINTF(2, 3);

/* The rules, most important first; `ret` is sorted: worst first, then by rule. */
void dr_rules_run(const struct dr_facts *facts, struct dr_report *ret);
enum dr_severity dr_report_worst(const struct dr_report *report);
/* Is RDMA needed: no configuration says otherwise? */
bool dr_needs_rdma(const struct dr_facts *facts);
const char *dr_transport_name(enum dr_transport transport);
const char *dr_pool_kind_name(enum dr_pool_kind kind);

void dr_rule_no_device(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_no_uverbs(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_no_rdma_cm(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_memlock(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_nvdimm(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_namespace(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_huge_pages(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_leaked(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_malformed(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_kind(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_access(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_registrable(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_missing(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_volatile(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_persistence(struct dr_rule_context *c, const struct dr_subject *s);
void dr_rule_pool_numa(struct dr_rule_context *c, const struct dr_subject *s);

/* ---- saying it (dr_print.c) ---- */

void dr_print(const struct dr_facts *facts, const struct dr_report *report, bool all);
json_t *dr_json(const struct dr_facts *facts, const struct dr_report *report);

#endif
