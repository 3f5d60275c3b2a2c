/* Lets a program's wall clock run ahead by as many microseconds as the file WALL_CLOCK_AHEAD says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t ahead(void) {
	static volatile int64_t *shared;
	const char *name = getenv("WALL_CLOCK_AHEAD");
	if (!shared && name) {
		int file = open(name, O_RDONLY);
		void *page = mmap(0, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
		shared = page == MAP_FAILED ? 0 : page;
		close(file);
	}
	return shared ? *shared : 0;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	long failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t ns = ts->tv_sec * 1000000000LL + ts->tv_nsec + ahead() * 1000;
		ts->tv_sec = ns / 1000000000, ts->tv_nsec = ns % 1000000000;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec, tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (at)
		*at = ts.tv_sec;
	return ts.tv_sec;
}
