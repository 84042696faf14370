/* What the processor and the system can run, as bits that dispatch.py names. */

#include "calls.h"

enum {
    AVX2 = 1,
    AVX_VNNI = 2,
    AVX512 = 4,
    AVX512_VNNI = 8,
    AVX512_BF16 = 16,
    DOT_PRODUCT = 32,
    ARM_BF16 = 64,
    AMX = 128,
};

#if defined(__x86_64__) || defined(_M_X64)

#ifdef _MSC_VER
#include <immintrin.h>
#include <intrin.h>
static void identify(uint32_t leaf, uint32_t sub, uint32_t out[4]) { __cpuidex((int *)out, (int)leaf, (int)sub); }
static uint64_t enabled_state(void) { return _xgetbv(0); }
#else
#include <cpuid.h>
static void identify(uint32_t leaf, uint32_t sub, uint32_t out[4]) {
    __cpuid_count(leaf, sub, out[0], out[1], out[2], out[3]);
}
static uint64_t enabled_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}
#endif

/* Whether the system lets this process use tiles: Linux wants to be asked, for its signal frames grow by 8 KiB. */
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
static int tiles_allowed(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}
#else
static int tiles_allowed(void) { return 0; }
#endif

EXPORT int64_t headwater_cpu(void) {
    uint32_t r[4];
    int64_t found = 0;
    identify(0, 0, r);
    if (r[0] < 7) return 0;
    identify(1, 0, r);
    const uint32_t basic = r[2];
    if (!(basic >> 27 & 1)) return 0; /* the system saves no vector registers */
    const uint64_t state = enabled_state();
    identify(7, 0, r);
    const uint32_t last = r[0], b = r[1], c = r[2], d = r[3];
    const int ymm = (state & 6) == 6, zmm = (state & 0xe6) == 0xe6;
    const int fma = basic >> 12 & 1, f16c = basic >> 29 & 1;
    if (ymm && fma && f16c && (b >> 5 & 1)) found |= AVX2;
    const uint32_t foundation = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    if ((found & AVX2) && zmm && (b & foundation) == foundation) found |= AVX512;
    if ((found & AVX512) && (c >> 11 & 1)) found |= AVX512_VNNI;
    if (last >= 1) {
        identify(7, 1, r);
        if ((found & AVX2) && (r[0] >> 4 & 1)) found |= AVX_VNNI;
        if ((found & AVX512) && (r[0] >> 5 & 1)) found |= AVX512_BF16;
    }
    const uint32_t amx = 1u << 22 | 1u << 24 | 1u << 25; /* bfloat16, tiles, int8 */
    if ((found & AVX512_BF16) && (d & amx) == amx && (state >> 17 & 3) == 3 && tiles_allowed()) found |= AMX;
    if (d >> 15 & 1) found &= AVX2 | AVX_VNNI; /* the cores differ: others may not have what this one has */
    return found;
}

#elif defined(__aarch64__) && defined(__linux__)

#include <sys/auxv.h>

EXPORT int64_t headwater_cpu(void) {
    int64_t found = 0;
    if (getauxval(16 /* AT_HWCAP */) >> 20 & 1) found |= DOT_PRODUCT;
    if (getauxval(26 /* AT_HWCAP2 */) >> 14 & 1) found |= ARM_BF16;
    return found;
}

#elif defined(__aarch64__) && defined(__APPLE__)

#include <sys/sysctl.h>

static int has(const char *name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value;
}

EXPORT int64_t headwater_cpu(void) {
    return (has("hw.optional.arm.FEAT_DotProd") ? DOT_PRODUCT : 0) | (has("hw.optional.arm.FEAT_BF16") ? ARM_BF16 : 0);
}

#else

EXPORT int64_t headwater_cpu(void) { return 0; }

#endif
