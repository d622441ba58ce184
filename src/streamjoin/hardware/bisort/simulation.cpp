// Drives a verilated BI-Sort engine with its memory: writes a batch to the memory, starts the engine, then counts
// cycles and takes records until the engine is done.

struct Engine {
    VerilatedContext context;
    Vtop top{&context};

    void half(int clock) {
        top.clk = clock;
        top.eval();
    }

    void cycle() { half(0), half(1); }
};

extern "C" {

// One batch. Arrays belong to the caller; items and records are 64-bit words.
struct Batch {
    const uint64_t* items;   // sorted by key
    int64_t count;
    int64_t insert;          // or else probe
    int64_t base;            // address of the batch in the memory
    int64_t most_cycles;
    uint64_t* records;       // room for `count`
    int64_t record_count;    // all records received, including those that did not fit
    int64_t cycles;
};

void* open_engine() {
    auto* engine = new Engine;
    engine->top.rst = 1;
    for (int i = 0; i < 2; i++) engine->cycle();
    engine->top.rst = 0;
    return engine;
}

void close_engine(void* handle) { delete static_cast<Engine*>(handle); }

void run_batch(void* handle, Batch* batch) {
    auto* engine = static_cast<Engine*>(handle);
    auto* top = &engine->top;
    top->host_write = 1;
    for (int64_t i = 0; i < batch->count; i++) {
        top->host_address = batch->base + i;
        put(top->host_item, batch->items + i);
        engine->cycle();
    }
    top->host_write = 0;
    (batch->insert ? top->insert : top->probe) = 1;
    top->batch = batch->count;
    OFFER_OUTPUTS(~0ll)
    engine->cycle();
    top->insert = top->probe = 0;
    batch->record_count = batch->cycles = 0;
    auto take_record = [&](int, bool valid, const auto& payload) {
        if (valid && batch->record_count++ < batch->count) get(payload, batch->records + batch->record_count - 1);
        return true;
    };
    for (engine->half(0); top->busy && batch->cycles < batch->most_cycles; engine->half(0), batch->cycles++) {
        TAKE_OUTPUTS(take_record);
        engine->half(1);
    }
    engine->half(1);
}

int64_t read_window(void* handle, int64_t other_half, uint64_t* items) {
    auto* engine = static_cast<Engine*>(handle);
    auto* top = &engine->top;
    const int64_t first = top->half ? other_half : 0;
    for (int64_t i = 0; i < top->count; i++) {
        top->host_address = first + i;
        engine->cycle();
        get(top->host_read, items + i);
    }
    return top->count;
}
}
