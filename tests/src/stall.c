/* Preloaded into the daemon: vectored writes to one file wait while another file exists, and are not given to the kernel.
 * A device that takes nothing for a while, and reports no error; what waits when the process is killed never happens.
 * STALL_FILE names the file, STALL_WHILE the other one, to which each write that waits adds a byte. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* The file that had the name last: it stalls also when it has none any more. */
static _Atomic ino_t last_inode;
static _Atomic dev_t last_device;

static int stalls(int fd) {
    const char *file = getenv("STALL_FILE"), *flag = getenv("STALL_WHILE");
    struct stat open_one, named;
    if (!file || !flag || access(flag, F_OK) != 0 || fstat(fd, &open_one) != 0)
        return 0;
    if (stat(file, &named) == 0) {
        last_inode = named.st_ino;
        last_device = named.st_dev;
    }
    return open_one.st_ino == last_inode && open_one.st_dev == last_device;
}

static void wait_for_it(int fd) {
    if (stalls(fd)) {
        int told = open(getenv("STALL_WHILE"), O_WRONLY | O_APPEND);
        if (told >= 0) {
            (void)!write(told, "w", 1);
            close(told);
        }
    }
    while (stalls(fd))
        usleep(1000);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t offset) {
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "pwritev64");
    wait_for_it(fd);
    return real(fd, iov, count, offset);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int count, off64_t offset, int flags) {
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, "pwritev2");
    wait_for_it(fd);
    return real(fd, iov, count, offset, flags);
}
