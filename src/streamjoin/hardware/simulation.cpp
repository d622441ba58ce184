// Drives a verilated join circuit: offers tuples, takes results, and records the cycle of each event.
// TRACE adds SAIF toggle counts.
#ifdef TRACE
#include "verilated_saif_c.h"
#endif

extern "C" {

// One run. Arrays belong to the caller; tuple and result are `words` 64-bit words each, low bits first.
struct Run {
    const uint64_t* tuples[2];      // left's and right's
    const int64_t* not_before[2];   // the first cycle in which each tuple is offered
    int64_t counts[2];
    int64_t tuple_words, result_words;
    const uint8_t* output_ready;    // one entry per cycle, repeated; bit i is lane i
    int64_t output_ready_length;
    int64_t drain;                  // stop after this many cycles with every lane ready and no event
    int64_t most_cycles;
    // Results of the run:
    int64_t* taken_cycle[2];        // per tuple; refused ones are stored as -1 - cycle
    uint64_t* results;
    int64_t* result_cycle;
    uint8_t* result_lane;
    int64_t result_room, result_count;
    int64_t cycles;                 // of the last event, plus one
    int64_t finished;               // all tuples were consumed and the outputs drained
    const char* trace;              // path of the SAIF file, if built with TRACE
};

void run_join(Run* run) {
    auto context = std::make_unique<VerilatedContext>();
#ifdef TRACE
    context->traceEverOn(true);
#endif
    auto top = std::make_unique<Vtop>(context.get());
#ifdef TRACE
    VerilatedSaifC saif;
    top->trace(&saif, 99);
    saif.open(run->trace);
#endif
    uint64_t time = 0;
    auto half = [&](int clock) {
        top->clk = clock;
        top->eval();
#ifdef TRACE
        saif.dump(time);
#endif
        context->time(++time);
    };
    PORT(left, valid) = PORT(right, valid) = 0;
    top->rst = 1;
    for (int i = 0; i < 2; i++) half(0), half(1);
    top->rst = 0;

    const int every_lane = (1 << OUTPUTS) - 1;
    int64_t next[2] = {0, 0};
    int64_t silent = 0;
    uint32_t refused[2] = {0, 0};
    run->result_count = run->cycles = run->finished = 0;
    for (int64_t cycle = 0; cycle < run->most_cycles; cycle++) {
        const uint8_t ready = run->output_ready[cycle % run->output_ready_length];
        bool offered[2];
        for (int side = 0; side < 2; side++) {
            offered[side] = next[side] < run->counts[side] && run->not_before[side][next[side]] <= cycle;
        }
        if ((PORT(left, valid) = offered[0])) put(PORT(left, payload), run->tuples[0] + next[0] * run->tuple_words);
        if ((PORT(right, valid) = offered[1])) put(PORT(right, payload), run->tuples[1] + next[1] * run->tuple_words);
        OFFER_OUTPUTS(ready)
        half(0);

        bool happened = false;
        const bool taken[2] = {offered[0] && PORT(left, ready), offered[1] && PORT(right, ready)};
        auto take_result = [&](int lane, bool valid, const auto& payload) {
            if (!valid || !(ready >> lane & 1)) return true;
            if (run->result_count == run->result_room) return false;
            get(payload, run->results + run->result_count * run->result_words);
            run->result_cycle[run->result_count] = cycle;
            run->result_lane[run->result_count++] = static_cast<uint8_t>(lane);
            return happened = true;
        };
        if (!TAKE_OUTPUTS(take_result)) break;  // no room
        half(1);

        const uint32_t now[2] = {top->refused_left, top->refused_right};
        for (int side = 0; side < 2; side++) {
            if (!taken[side]) continue;
            run->taken_cycle[side][next[side]++] = now[side] != refused[side] ? -1 - cycle : cycle;
            happened = true;
        }
        refused[0] = now[0], refused[1] = now[1];
        if (happened) run->cycles = cycle + 1;
        const bool waiting = next[0] < run->counts[0] || next[1] < run->counts[1];
        silent = happened || waiting ? 0 : silent + ((ready & every_lane) == every_lane);
        if (silent > run->drain) {
            run->finished = 1;
            break;
        }
    }
#ifdef TRACE
    saif.close();
#endif
    top->final();
}
}
