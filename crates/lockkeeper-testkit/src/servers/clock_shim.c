/* Shifts or stops the wall clock of the process it is preloaded into, as two numbers in a file say.
 *
 * The first is added to the right time, in nanoseconds. The second, unless it is 0, is the time at which the clock stands
 * still, in nanoseconds since 1970. The file named by LOCKKEEPER_CLOCK is mapped, so that a test can set the clock while
 * the process runs.
 * Monotonic clocks are left alone, as they are when somebody sets a machine's clock. System calls instead of
 * dlsym: allocators ask for the time before the dynamic linker is ready to look anything up. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const struct {
    long long shift, stands;
} *setting;

__attribute__((constructor)) static void map_setting(void) {
    const char *path = getenv("LOCKKEEPER_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        abort();
    void *page = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED)
        abort();
    setting = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && setting && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long stands = setting->stands;
        long long nanos = stands ? stands : time->tv_sec * 1000000000LL + time->tv_nsec + setting->shift;
        time->tv_sec = nanos / 1000000000LL;
        time->tv_nsec = nanos % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *time, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
