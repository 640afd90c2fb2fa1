/* Rust's std comes compiled, without ThreadSanitizer: of a lock that is contended, of a condition variable and of a value that is set
   once it sees what the inlined part does, and not what the functions below do. They are wrapped by the linker (--wrap), and say it. */

void __tsan_acquire(void *);
void __tsan_release(void *);

#define PASTE(a, b) a##b
#define NAME(prefix, symbol) PASTE(prefix, symbol)
#define REAL(symbol) NAME(__real_, symbol)
#define WRAP(symbol) NAME(__wrap_, symbol)

/* The slow way to take a lock; the fast one, and both to give it back, are inlined. */
#define LOCK(symbol)                  \
    void REAL(symbol)(void *);        \
    void WRAP(symbol)(void *lock) {   \
        REAL(symbol)(lock);           \
        __tsan_acquire(lock);         \
    }

LOCK(MUTEX_LOCK_CONTENDED)
LOCK(RWLOCK_READ_CONTENDED)
LOCK(RWLOCK_WRITE_CONTENDED)

/* Gives the lock back, waits, and takes it again. */
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

/* Sets a value, or waits until another thread has; that it is there is seen by an inlined load. */
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
