/* Rust's standard library is precompiled without ThreadSanitizer. ThreadSanitizer therefore sees only the inlined part of locks, condition
   variables and once cells, and not their out-of-line functions. The linker wraps these functions (--wrap) with the ones below, which
   report the synchronization to ThreadSanitizer. */

void __tsan_acquire(void *);
void __tsan_release(void *);

#define PASTE(a, b) a##b
#define NAME(prefix, symbol) PASTE(prefix, symbol)
#define REAL(symbol) NAME(__real_, symbol)
#define WRAP(symbol) NAME(__wrap_, symbol)

/* The slow path of locking. The fast path and unlocking are inlined. */
#define LOCK(symbol)                  \
    void REAL(symbol)(void *);        \
    void WRAP(symbol)(void *lock) {   \
        REAL(symbol)(lock);           \
        __tsan_acquire(lock);         \
    }

LOCK(MUTEX_LOCK_CONTENDED)
LOCK(RWLOCK_READ_CONTENDED)
LOCK(RWLOCK_WRITE_CONTENDED)

/* Releases the lock, waits, and acquires the lock again. */
void REAL(CONDVAR_WAIT)(void *, void *);
void WRAP(CONDVAR_WAIT)(void *condvar, void *lock) {
    __tsan_release(lock);
    REAL(CONDVAR_WAIT)(condvar, lock);
    __tsan_acquire(lock);
}

_Bool REAL(CONDVAR_WAIT_TIMEOUT)(void *, void *, unsigned long, unsigned);
_Bool WRAP(CONDVAR_WAIT_TIMEOUT)(void *condvar, void *lock, unsigned long seconds, unsigned nanoseconds) {
    __tsan_release(lock);
    _Bool notified = REAL(CONDVAR_WAIT_TIMEOUT)(condvar, lock, seconds, nanoseconds);
    __tsan_acquire(lock);
    return notified;
}

/* Sets the value, or waits until another thread has set it. Later readers check with an inlined load whether it is set. */
void REAL(ONCE_CALL)(void *, _Bool, void *, void *, void *);
void WRAP(ONCE_CALL)(void *once, _Bool ignore, void *value, void *table, void *caller) {
    REAL(ONCE_CALL)(once, ignore, value, table, caller);
    __tsan_acquire(once);
    __tsan_release(once);
}

void REAL(ONCE_WAIT)(void *, void *);
void WRAP(ONCE_WAIT)(void *once, void *caller) {
    REAL(ONCE_WAIT)(once, caller);
    __tsan_acquire(once);
}
