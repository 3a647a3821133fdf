/* Lets a test set the wall clock of one process: LD_PRELOAD it, and name in CLOCK_STEP_FILE a file with eight bytes,
 * a signed number of nanoseconds in the machine's order, by which that process sees the wall clock differ.
 * The clocks that nobody sets (CLOCK_MONOTONIC, CLOCK_BOOTTIME) are as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void open_offset(void) {
  const char *path = getenv("CLOCK_STEP_FILE");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0)
    return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED)
    offset = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real)
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, now);
  if (status == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t seen = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + *offset;
    now->tv_sec = seen / 1000000000;
    now->tv_nsec = seen % 1000000000;
  }
  return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec seen;
  (void)zone;
  int status = clock_gettime(CLOCK_REALTIME, &seen);
  now->tv_sec = seen.tv_sec;
  now->tv_usec = seen.tv_nsec / 1000;
  return status;
}

time_t time(time_t *result) {
  struct timespec seen;
  clock_gettime(CLOCK_REALTIME, &seen);
  if (result)
    *result = seen.tv_sec;
  return seen.tv_sec;
}
