// Runs a kernel block by block. Each thread of a block is a fiber that runs until it ends or waits at a barrier.
//
// If a thread never reaches a barrier or a warp operation that others wait at, the process ends with a message that
// names the kernel.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "device.h"

#if !defined(__x86_64__)
#error "the emulator switches fibers in x86-64 assembly"
#endif

// Saves the callee-saved registers on the current stack and continues on the other stack.
asm(R"(
.text
.type trireme_switch, @function
trireme_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size trireme_switch, . - trireme_switch
)");
extern "C" void trireme_switch(void** save, void* load);

namespace emulator {

enum class State { Ready, Barrier, WarpOp, Ended };

struct Fiber {
    Thread thread;
    State state;
    void* stack_pointer;
    char* stack;
    int line;
    int predicate;
    Warp kind;
    unsigned mask;
    uint64_t value, result;
    int source;
};

static constexpr size_t STACK = 128 << 10, GUARD = 4096;
static constexpr uint64_t SPOILT = 0xffffffffffffffffull;

static const Launch* launch;
static std::vector<Fiber> fibers;
static std::vector<char*> free_stacks;
static Fiber* current;
static void* scheduler;
static size_t waiting;

[[noreturn]] static void fail(const Fiber& fiber, const char* what) {
    const Thread& t = fiber.thread;
    die("kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s", launch->kernel->name, t.block.x, t.block.y, t.block.z, t.thread.x,
        t.thread.y, t.thread.z, what);
}

/// Leaves the fiber and returns when its state is Ready again.
static void leave() { trireme_switch(&current->stack_pointer, scheduler); }

static int on_barrier(int line, int predicate) {
    current->state = State::Barrier;
    current->line = line;
    current->predicate = predicate;
    if (++waiting == fibers.size()) {
        int count = 0;
        for (Fiber& f : fibers) {
            if (f.line != line) {
                char text[160];
                snprintf(text, sizeof text, "waits at the __syncthreads of line %d, another thread at that of line %d", line, f.line);
                fail(*current, text);
            }
            count += f.predicate;
            f.state = State::Ready;
        }
        for (Fiber& f : fibers) f.predicate = count;
        waiting = 0;
    }
    leave();
    return current->predicate;
}

/// Returns the first fiber of the warp and the number of its lanes in the block.
static Fiber* warp_of(const Fiber& fiber, unsigned& lanes) {
    size_t first = (size_t)(&fiber - fibers.data()) & ~(size_t)31;
    lanes = (unsigned)std::min<size_t>(32, fibers.size() - first);
    return &fibers[first];
}

static uint64_t on_warp(Warp kind, unsigned mask, uint64_t value, int source, int line) {
    Fiber& own = *current;
    unsigned lanes;
    Fiber* warp = warp_of(own, lanes);
    if (lanes < 32) mask &= (1u << lanes) - 1;
    if (!(mask >> own.thread.lane & 1)) fail(own, "calls a warp operation whose mask leaves it out");
    own.state = State::WarpOp;
    own.line = line, own.kind = kind, own.mask = mask, own.value = value, own.source = source;
    bool all = true;
    for (unsigned l = 0; l < lanes; ++l)
        if (mask >> l & 1)
            all &= warp[l].state == State::WarpOp && warp[l].mask == mask && warp[l].kind == kind && warp[l].line == line;
    if (all) {
        unsigned ballot = 0;
        for (unsigned l = 0; l < lanes; ++l)
            if (mask >> l & 1) ballot |= (warp[l].value != 0 ? 1u : 0u) << l;
        for (unsigned l = 0; l < lanes; ++l) {
            if (!(mask >> l & 1)) continue;
            int from = warp[l].source;
            // A lane outside of the mask has no value. A device would return an arbitrary value, the emulator returns
            // NaN.
            bool there = from >= 0 && from < (int)lanes && (mask >> from & 1);
            warp[l].result = kind == Warp::Ballot ? ballot : kind == Warp::Shuffle && there ? warp[from].value : SPOILT;
            warp[l].state = State::Ready;
        }
    }
    leave();
    return current->result;
}

static void on_fail(const char* message) { fail(*current, message); }

static const Hooks HOOKS = {on_barrier, on_warp, on_fail};

static void fiber_main() {
    launch->kernel->run(const_cast<void**>(launch->parameters.data()));
    current->state = State::Ended;
    leave();
    __builtin_unreachable();
}

/// Prepares a stack for a switch that starts `main`, which must not return.
static void* prepared(char* stack, size_t bytes, void (*main)()) {
    auto* top = reinterpret_cast<void**>(stack + bytes);
    // From the top: no return address, the function to start, six registers.
    memset(top - 8, 0, 8 * sizeof(void*));
    top[-2] = reinterpret_cast<void*>(main);
    return top - 8;
}

void on_fresh_stack(void (*what)()) {
    static void (*call)();
    static void* back;
    alignas(16) static char stack[STACK];
    call = what;
    trireme_switch(&back, prepared(stack, STACK, [] {
        call();
        void* ended;
        trireme_switch(&ended, back);
    }));
}

static void give_stack(Fiber& fiber) {
    if (free_stacks.empty()) {
        void* memory = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE)) die("no memory for the stack of a thread");
        free_stacks.push_back(static_cast<char*>(memory));
    }
    fiber.stack = free_stacks.back();
    free_stacks.pop_back();
    fiber.stack_pointer = prepared(fiber.stack + GUARD, STACK, fiber_main);
}

static void resume(Fiber& fiber) {
    if (!fiber.stack) give_stack(fiber);
    current = &fiber;
    *launch->module->current = &fiber.thread;
    trireme_switch(&scheduler, fiber.stack_pointer);
    if (fiber.state == State::Ended) free_stacks.push_back(fiber.stack), fiber.stack = nullptr;
}

/// Returns the order of threads or blocks that the settings require.
static std::vector<unsigned> permutation(size_t count) {
    std::vector<unsigned> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = (unsigned)i;
    if (settings().order == Settings::Reverse) std::reverse(order.begin(), order.end());
    if (settings().order == Settings::Random)
        for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[chance((unsigned)i)]);
    return order;
}

[[noreturn]] static void stuck() {
    const Fiber *waits = nullptr, *other = nullptr;
    for (const Fiber& f : fibers)
        if (f.state != State::Ended) waits = &f;
    for (const Fiber& f : fibers)
        if (f.state != waits->state || f.line != waits->line) other = &f;
    char text[256];
    const char* what = waits->state == State::Barrier ? "__syncthreads" : "warp operation";
    if (other && other->state != State::Ended)
        snprintf(text, sizeof text, "waits for ever at the %s of line %d: thread %u waits at line %d", what, waits->line,
                 other->thread.thread.x, other->line);
    else
        snprintf(text, sizeof text, "waits for ever at the %s of line %d: thread %u has ended", what, waits->line,
                 other ? other->thread.thread.x : 0);
    fail(*waits, text);
}

static void run_block(Index block, const std::vector<unsigned>& order) {
    Index size = launch->block;
    for (size_t i = 0; i < fibers.size(); ++i) {
        unsigned t = (unsigned)i;
        Fiber& f = fibers[i];
        f = {};
        f.thread = {{t % size.x, t / size.x % size.y, t / (size.x * size.y)}, block, size, launch->grid, t % 32, &HOOKS};
        f.state = State::Ready;
    }
    waiting = 0;
    for (size_t ended = 0; ended < fibers.size();) {
        bool progress = false;
        for (unsigned i : order) {
            if (fibers[i].state != State::Ready) continue;
            resume(fibers[i]);
            progress = true;
            if (fibers[i].state == State::Ended) ++ended;
        }
        if (!progress) stuck();
    }
}

void run_launch(const Launch& what) {
    launch = &what;
    Index grid = what.grid;
    size_t threads = (size_t)what.block.x * what.block.y * what.block.z, blocks = (size_t)grid.x * grid.y * grid.z;
    what.module->touch_shared();
    fibers.resize(threads);
    auto order = permutation(threads);
    for (unsigned b : permutation(blocks)) {
        if (void* shared = what.shared()) memset(shared, 0xff, what.shared_bytes);
        run_block({b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)}, order);
    }
    *what.module->current = nullptr;
}

}  // namespace emulator
