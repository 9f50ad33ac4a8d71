/* Preloaded into the daemon: the calls by which files below one folder are made, changed, removed and made durable are counted, and
 * one of them fails, or all from one on. FAIL_BELOW names the folder, FAIL_CONTROL a file that is mapped and tells which (struct
 * control). What a data-path thread writes to an open tier goes by other calls (pwritev, fdatasync), which are left alone: that is
 * the medium of the tier, and not the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct control {
    uint32_t armed;  /* 1: counting */
    uint32_t at;     /* the call that fails, the first being 1 */
    uint32_t beyond; /* 1: all calls behind it fail as well */
    uint32_t error;  /* with this errno */
    uint32_t seen;   /* calls so far */
    uint32_t failed; /* of these, so many have failed */
    char what[1000]; /* the first that has */
};

static struct control *control(void) {
    static struct control *mapped;
    struct control *found = __atomic_load_n(&mapped, __ATOMIC_ACQUIRE);
    const char *path = getenv("FAIL_CONTROL");
    if (found || !path)
        return found;
    int (*open_it)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
    int fd = open_it(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED)
        return NULL;
    __atomic_store_n(&mapped, found, __ATOMIC_RELEASE);
    return found;
}

/* What is seen of volumes is written all the time, by threads of its own: it fails with everything else, and is not counted. */
static int is_background(const char *path) {
    return strstr(path, "/history") || strstr(path, "/events") || strstr(path, "/doctor");
}

static int fails(const char *call, const char *path) {
    struct control *c = control();
    const char *below = getenv("FAIL_BELOW");
    if (!c || !below || !__atomic_load_n(&c->armed, __ATOMIC_ACQUIRE))
        return 0;
    size_t length = strlen(below);
    if (strncmp(path, below, length) != 0 || (path[length] != '/' && path[length] != 0))
        return 0;
    if (is_background(path)) {
        if (!c->beyond || __atomic_load_n(&c->failed, __ATOMIC_ACQUIRE) == 0)
            return 0;
        errno = c->error;
        return 1;
    }
    uint32_t number = __atomic_add_fetch(&c->seen, 1, __ATOMIC_ACQ_REL);
    if (number != c->at && !(c->beyond && number > c->at))
        return 0;
    if (number == c->at)
        snprintf(c->what, sizeof c->what, "%s %s", call, path);
    __atomic_add_fetch(&c->failed, 1, __ATOMIC_ACQ_REL);
    errno = c->error;
    return 1;
}

static int fails_at(const char *call, int folder, const char *name) {
    char link[64], path[2048];
    if (name[0] == '/')
        return fails(call, name);
    if (folder == AT_FDCWD)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof path / 2);
    if (length < 0)
        return 0;
    snprintf(path + length, sizeof path - length, "/%s", name);
    return fails(call, path);
}

static int fails_on(const char *call, int fd) {
    int before = errno;
    char link[64], path[2048];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

static int changes(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        real = dlsym(RTLD_NEXT, name)

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return changes(flags) && fails_at("open", AT_FDCWD, path) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return changes(flags) && fails_at("open", folder, path) ? -1 : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define ON_FD(type, name, call, parameters, arguments) \
    type name parameters { \
        static type (*real) parameters; \
        if (!real) \
            real = dlsym(RTLD_NEXT, #name); \
        return fails_on(call, fd) ? -1 : real arguments; \
    }
ON_FD(ssize_t, write, "write", (int fd, const void *bytes, size_t count), (fd, bytes, count))
ON_FD(ssize_t, pwrite, "write", (int fd, const void *bytes, size_t count, off_t at), (fd, bytes, count, at))
ON_FD(ssize_t, pwrite64, "write", (int fd, const void *bytes, size_t count, off64_t at), (fd, bytes, count, at))
ON_FD(int, fsync, "fsync", (int fd), (fd))
ON_FD(int, ftruncate, "truncate", (int fd, off_t length), (fd, length))
ON_FD(int, ftruncate64, "truncate", (int fd, off64_t length), (fd, length))
ON_FD(int, fallocate, "allocate", (int fd, int mode, off_t at, off_t length), (fd, mode, at, length))
ON_FD(int, fallocate64, "allocate", (int fd, int mode, off64_t at, off64_t length), (fd, mode, at, length))
ON_FD(int, fchmod, "chmod", (int fd, mode_t mode), (fd, mode))

#define AT(name, call, folder, path, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (!real) \
            real = dlsym(RTLD_NEXT, #name); \
        return fails_at(call, folder, path) ? -1 : real arguments; \
    }
AT(chmod, "chmod", AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
AT(mkdir, "mkdir", AT_FDCWD, path, (const char *path, mode_t mode), (path, mode))
AT(mkdirat, "mkdir", folder, path, (int folder, const char *path, mode_t mode), (folder, path, mode))
AT(unlink, "unlink", AT_FDCWD, path, (const char *path), (path))
AT(unlinkat, "unlink", folder, path, (int folder, const char *path, int flags), (folder, path, flags))
AT(rename, "rename", AT_FDCWD, to, (const char *from, const char *to), (from, to))
AT(renameat, "rename", into, to, (int folder, const char *from, int into, const char *to), (folder, from, into, to))
AT(link, "link", AT_FDCWD, to, (const char *from, const char *to), (from, to))
AT(linkat, "link", into, to, (int folder, const char *from, int into, const char *to, int flags), (folder, from, into, to, flags))
AT(symlinkat, "link", into, to, (const char *from, int into, const char *to), (from, into, to))
