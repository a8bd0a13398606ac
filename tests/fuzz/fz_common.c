/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_common.c: see fz_common.h. */
#include "tests/fuzz/fz_common.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef FZ_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define PAGE 4096u

const struct cn_uuid fz_pool_uuid = {{0x90, 0x01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
const struct cn_uuid fz_cluster_uuid = {{0xc1, 0x05, 0x7e}};
const struct cn_uuid fz_session_uuid = {{0x5e, 0x55, 1, 1}};

void fz_die(const char *file, int line, const char *cond, const char *format, ...)
{
    va_list list;

    (void)fflush(stdout);
    fprintf(stderr, "%s:%d: not so: %s: ", file, line, cond);
    va_start(list, format);
    (void)vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n");
    abort();
}

/* ---- decisions ---- */

static uint64_t take(struct fz_input *in, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size && in->left > 0; i++, in->at++, in->left--)
        value |= (uint64_t)*in->at << (8 * i);
    return value;
}

uint8_t fz_u8(struct fz_input *in) { return (uint8_t)take(in, 1); }
uint16_t fz_u16(struct fz_input *in) { return (uint16_t)take(in, 2); }
uint32_t fz_u32(struct fz_input *in) { return (uint32_t)take(in, 4); }
uint64_t fz_u64(struct fz_input *in) { return take(in, 8); }

const uint8_t *fz_bytes(struct fz_input *in, size_t max, size_t *ret_size)
{
    const uint8_t *at = in->at;
    size_t size = in->left < max ? in->left : max;

    in->at += size;
    in->left -= size;
    *ret_size = size;
    return at;
}

uint64_t fz_interesting(uint8_t choice)
{
    static const uint64_t values[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 55, 56, 57, 63, 64, 65,
        127, 128, 255, 256, 511, 512, 1023, 1024, 2046, 2047, 2048, 4095, 4096, 8191, 8192, 65535,
        65536, UINT64_C(1) << 20, (UINT64_C(1) << 20) + 1, UINT64_C(1) << 31, UINT32_MAX,
        UINT64_C(1) << 32, PM_VERSION_MAX, PM_VERSION_MAX - PM_VERSION_MARGIN,
        PM_VERSION_MAX - PM_VERSION_MARGIN - 1, PM_VERSION_MAX + 1, UINT64_C(1) << 43,
        UINT64_C(1) << 62, (UINT64_C(1) << 62) + 1, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 4095,
        UINT64_MAX - 63, UINT64_MAX - 1, UINT64_MAX};

    return values[choice % CN_ARRAY_SIZE(values)];
}

/* ---- guard pages ---- */

static uint8_t *map(size_t size)
{
    uint8_t *at = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED || mprotect(at + PAGE, size, PROT_READ | PROT_WRITE) != 0) {
        perror("fuzz: mmap");
        exit(2);
    }
    return at + PAGE;
}

void *fz_guard_new(size_t size)
{
    CAIRN_ASSERT(size % PAGE == 0);
    return map(size);
}

static uint8_t *lane_of(unsigned lane)
{
    static uint8_t *lanes[FZ_GUARD_LANES];

    CAIRN_ASSERT(lane < FZ_GUARD_LANES);
    if (lanes[lane] == NULL)
        lanes[lane] = map(FZ_GUARD_MAX);
    return lanes[lane];
}

static void fill(uint8_t *at, const void *data, size_t size)
{
    if (data == NULL)
        memset(at, 0, size);
    else if (size > 0)
        memcpy(at, data, size);
}

/* The guard page is on one side; on the other the sanitizer, where there is one, keeps watch. */
void *fz_guard_end(unsigned lane, const void *data, size_t size)
{
    uint8_t *base = lane_of(lane);
    uint8_t *at = base + FZ_GUARD_MAX - size;

    CAIRN_ASSERT(size <= FZ_GUARD_MAX);
    ASAN_UNPOISON_MEMORY_REGION(base, FZ_GUARD_MAX);
    fill(at, data, size);
    ASAN_POISON_MEMORY_REGION(base, FZ_GUARD_MAX - size);
    return at;
}

void *fz_guard_begin(unsigned lane, const void *data, size_t size)
{
    uint8_t *base = lane_of(lane);

    CAIRN_ASSERT(size <= FZ_GUARD_MAX);
    ASAN_UNPOISON_MEMORY_REGION(base, FZ_GUARD_MAX);
    fill(base, data, size);
    ASAN_POISON_MEMORY_REGION(base + size, FZ_GUARD_MAX - size);
    return base;
}

/* ---- checksums ---- */

void fz_mend_record(uint8_t *record, uint32_t size, const struct pm_place *place, uint64_t lap)
{
    struct pm_place as = *place;
    struct le16 participants;
    struct le32 crc;
    struct le64 seal;
    uint32_t how;

    memcpy(&crc, record + offsetof(struct pm_record_pm, crc), sizeof(crc));
    how = le32_get(crc);
    if (how >= FZ_MEND_COUNT)
        return;
    if (how == FZ_MEND_EARLIER_LAP)
        as.log_off -= lap;
    if (how == FZ_MEND_OTHER_NONCE)
        as.nonce++;
    if (how == FZ_MEND_OTHER_EPOCH)
        as.epoch++;
    crc = le32_make(pm_record_crc(record, size, &as));
    memcpy(record + offsetof(struct pm_record_pm, crc), &crc, sizeof(crc));
    if (how == FZ_MEND_CRC_ONLY || size < sizeof(struct pm_record_pm) ||
        record[offsetof(struct pm_record_pm, type)] != PM_RECORD_TX)
        return;
    memcpy(&participants, record + offsetof(struct pm_record_pm, participant_count), 2);
    if (le16_get(participants) != 1)
        return;
    seal = le64_make(pm_record_seal(record, size, &as));
    memcpy(record + offsetof(struct pm_record_pm, mark), &seal, sizeof(seal));
}

/* ---- files ---- */

const char *fz_file(const void *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        CAIRN_ASSERT(fd >= 0);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) {
        perror("fuzz: memfd");
        exit(2);
    }
    return path;
}
