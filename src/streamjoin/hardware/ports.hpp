// Ports of a verilated circuit as 64-bit words, low bits first. The build puts this text before a driver, and these
// macros before this text:
//   OUTPUTS            number of output streams
//   OFFER_OUTPUTS(r)   sets `ready` of output i to bit i of r
//   TAKE_OUTPUTS(f)    calls f(i, valid, payload) for each output until one returns false
#include <cstdint>
#include <memory>

#include "Vtop.h"
#include "verilated.h"

// Verilator spells Amaranth's `stream__field` like this.
#define PORT(stream, field) top->stream##___05F##field

namespace {

template <class T>
void put(T& port, const uint64_t* words) {
    port = static_cast<T>(words[0]);
}

template <std::size_t N>
void put(VlWide<N>& port, const uint64_t* words) {
    for (std::size_t i = 0; i < N; i++) port[i] = static_cast<uint32_t>(words[i / 2] >> (32 * (i % 2)));
}

template <class T>
void get(const T& port, uint64_t* words) {
    words[0] = port;
}

template <std::size_t N>
void get(const VlWide<N>& port, uint64_t* words) {
    for (std::size_t i = 0; i < N; i++) {
        const uint64_t half = static_cast<uint64_t>(port[i]) << (32 * (i % 2));
        words[i / 2] = i % 2 ? words[i / 2] | half : half;
    }
}

}  // namespace
