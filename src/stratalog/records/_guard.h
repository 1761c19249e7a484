/* Reading mapped files without dying of it.
 *
 * A file that its owner cuts short while it is mapped, or that the disk cannot deliver, answers a read
 * with SIGBUS, which ends the process. stratalog_guarded() runs a piece of work over a mapping and comes
 * back with 1 instead. The work must hold nothing that a jump out of it would lose: no lock, no memory of
 * its own, no Python. Signals from elsewhere go to whoever handled them before.
 */
#ifndef STRATALOG_GUARD_H
#define STRATALOG_GUARD_H

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    sigjmp_buf back;
    const uint8_t *start;
    const uint8_t *end;
} stratalog_guard;

static __thread stratalog_guard *stratalog_guard_active = NULL;
static struct sigaction stratalog_guard_previous;

static void stratalog_guard_handle(int number, siginfo_t *info, void *context) {
    stratalog_guard *guard = stratalog_guard_active;
    const uint8_t *address = (const uint8_t *)info->si_addr;
    if (guard != NULL && address >= guard->start && address < guard->end)
        siglongjmp(guard->back, 1);
    if (stratalog_guard_previous.sa_flags & SA_SIGINFO) {
        stratalog_guard_previous.sa_sigaction(number, info, context);
    } else if (stratalog_guard_previous.sa_handler != SIG_DFL &&
               stratalog_guard_previous.sa_handler != SIG_IGN) {
        stratalog_guard_previous.sa_handler(number);
    } else {
        sigaction(number, &stratalog_guard_previous, NULL);  /* and the read fails again */
    }
}

/* Others (faulthandler, a JVM in the process) may have set their own since: look every time. */
static void stratalog_guard_install(void) {
    struct sigaction now;
    sigaction(SIGBUS, NULL, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == stratalog_guard_handle) return;
    stratalog_guard_previous = now;
    memset(&now, 0, sizeof now);
    sigemptyset(&now.sa_mask);
    now.sa_sigaction = stratalog_guard_handle;
    now.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, &now, NULL);
}

/* Runs work(argument); 1 where a read between start and end failed, 0 where all went well. */
static int stratalog_guarded(
    const uint8_t *start, size_t size, void (*work)(void *), void *argument) {
    stratalog_guard guard;
    stratalog_guard *outer = stratalog_guard_active;
    guard.start = start;
    guard.end = start + size;
    stratalog_guard_install();
    if (sigsetjmp(guard.back, 1) != 0) {
        stratalog_guard_active = outer;
        return 1;
    }
    stratalog_guard_active = &guard;
    work(argument);
    stratalog_guard_active = outer;
    return 0;
}

#endif
