// What McCalpin's STREAM does, by other means than `forebay doctor matrix`, which is compared with it: loops over doubles, one pinned
// thread on each of the CPUs given, each with arrays of its own that it touches first, all over one common time.
//
//   cc -O3 -mavx2 -pthread -fno-tree-loop-distribute-patterns -o stream stream.c
//   stream KERNEL MIB SECONDS CPU...      MIB is that of each thread's arrays together, SECONDS of each of three windows
//
// Prints the median of the windows: the bytes a second that the loops read and wrote, as STREAM counts: what a store makes a CPU read before is not in them.
// Without the flag for patterns gcc would make a call of memset of the plain stores.
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CPUS_MAX 1024
// Doubles between two looks at the clock's hand: 1 MiB of each array.
#define BLOCK (1L << 17)
// Before anything is counted: clocks rise.
#define WARM_UP_US 200000
#define WINDOWS 3

static const char *const NAMES[] = {"read", "triad-past", "copy-past", "write-past", "write"};
static const int ARRAYS[] = {1, 3, 2, 1, 1};
static int kernel;
static long doubles;
static atomic_int ready, phase;

struct worker {
    int cpu;
    long blocks[WINDOWS];
    double sum;
};

// `s` comes from the outside, so that it is no constant; and never zero, which some CPUs write at half the cost.
static double block(double *a, double *b, double *c, double s) {
    double sum = 0;
    switch (kernel) {
    case 0: {
        __m256d sums[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
        for (long i = 0; i < BLOCK; i += 16)
            for (int j = 0; j < 4; j++) sums[j] = _mm256_add_pd(sums[j], _mm256_load_pd(a + i + 4 * j));
        for (int j = 0; j < 4; j++) sum += sums[j][0] + sums[j][1] + sums[j][2] + sums[j][3];
        break;
    }
    case 1:
        for (long i = 0; i < BLOCK; i += 4)
            _mm256_stream_pd(c + i, _mm256_add_pd(_mm256_load_pd(a + i), _mm256_mul_pd(_mm256_set1_pd(s), _mm256_load_pd(b + i))));
        break;
    case 2:
        for (long i = 0; i < BLOCK; i += 4) _mm256_stream_pd(b + i, _mm256_load_pd(a + i));
        break;
    case 3:
        for (long i = 0; i < BLOCK; i += 4) _mm256_stream_pd(a + i, _mm256_set1_pd(s));
        break;
    case 4:
        for (long i = 0; i < BLOCK; i++) a[i] = s;
        break;
    }
    _mm_sfence();
    return sum;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(worker->cpu, &set);
    int pinned = sched_setaffinity(0, sizeof set, &set);
    size_t bytes = doubles * ARRAYS[kernel] * sizeof(double), huge = 2 << 20;
    double *array = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (pinned || !array) {
        fprintf(stderr, "stream: no CPU %d, or no %zu bytes\n", worker->cpu, bytes);
        exit(1);
    }
    // Where the kernel gives no huge pages, both sides go without.
    (void)madvise(array, bytes, MADV_HUGEPAGE);
    for (long i = 0; i < doubles * ARRAYS[kernel]; i++) array[i] = 1.5;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&phase) == 0) usleep(1000);
    double *b = array + (ARRAYS[kernel] > 1 ? doubles : 0), *c = array + (ARRAYS[kernel] > 2 ? 2 * doubles : 0);
    for (;;)
        for (long at = 0; at + BLOCK <= doubles; at += BLOCK) {
            worker->sum += block(array + at, b + at, c + at, 3.25 + worker->cpu);
            int now = atomic_load(&phase);
            if (now == 2 + WINDOWS) return NULL;
            if (now >= 2) worker->blocks[now - 2]++;
        }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int by_rate(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int count, char **words) {
    static struct worker workers[CPUS_MAX];
    pthread_t threads[CPUS_MAX];
    int cpus = count - 4;
    for (kernel = 0; kernel < 5 && count > 1 && strcmp(words[1], NAMES[kernel]); kernel++) {}
    if (cpus < 1 || cpus > CPUS_MAX || kernel == 5) {
        fprintf(stderr, "usage: stream read|triad-past|copy-past|write-past|write MIB SECONDS CPU...\n");
        return 2;
    }
    doubles = (atol(words[2]) << 20) / ARRAYS[kernel] / (long)sizeof(double) / BLOCK * BLOCK;
    if (doubles == 0) {
        fprintf(stderr, "stream: %s MiB are less than one block of each array\n", words[2]);
        return 2;
    }
    for (int i = 0; i < cpus; i++) {
        workers[i].cpu = atoi(words[4 + i]);
        if (pthread_create(&threads[i], NULL, work, &workers[i])) return 1;
    }
    while (atomic_load(&ready) < cpus) usleep(1000);
    atomic_store(&phase, 1);
    usleep(WARM_UP_US);
    double rates[WINDOWS], begin = now(), sum = 0;
    for (int window = 0; window < WINDOWS; window++) {
        atomic_store(&phase, 2 + window);
        usleep((useconds_t)(atof(words[3]) * 1e6));
        double end = now();
        rates[window] = end - begin;
        begin = end;
    }
    atomic_store(&phase, 2 + WINDOWS);
    for (int i = 0; i < cpus; i++) {
        pthread_join(threads[i], NULL);
        sum += workers[i].sum;
    }
    for (int window = 0; window < WINDOWS; window++) {
        long blocks = 0;
        for (int i = 0; i < cpus; i++) blocks += workers[i].blocks[window];
        rates[window] = blocks * (double)BLOCK * sizeof(double) * ARRAYS[kernel] / rates[window];
    }
    qsort(rates, WINDOWS, sizeof *rates, by_rate);
    printf("%.0f\n", rates[WINDOWS / 2]);
    // What was read counts for something, so that no compiler leaves it out.
    return sum < 0;
}
