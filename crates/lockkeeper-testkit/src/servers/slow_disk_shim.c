/* Makes every sync of the process it is preloaded into take longer, by as many nanoseconds as a number in a file says.
 *
 * The file named by LOCKKEEPER_SLOW_DISK is mapped, so that a test can change the number while the process runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile const struct {
    long long nanos;
} *setting;

__attribute__((constructor)) static void map_setting(void) {
    const char *path = getenv("LOCKKEEPER_SLOW_DISK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *page = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        abort();
    setting = page;
}

static int slowly(long call, int file) {
    int failed = syscall(call, file);
    int error = errno;
    long long nanos = setting ? setting->nanos : 0;
    struct timespec left = {nanos / 1000000000LL, nanos % 1000000000LL};
    while (nanos && nanosleep(&left, &left) && errno == EINTR)
        ;
    errno = error;
    return failed;
}

int fsync(int file) {
    return slowly(SYS_fsync, file);
}

int fdatasync(int file) {
    return slowly(SYS_fdatasync, file);
}
