// Nodes of layers that fold over tokens: (what a step brings, the state before it) -> (answers, the state after it).
#include "recurrent/scans_nodes.h"

namespace modelkit {
namespace {
Pair conv(const Array& x, const Maybe& gate_in, const Maybe& gate_out, const Array& before, const Array& filters,
          const Maybe& bias, const Maybe& counts, bool silu) {
  want(x.ndim() == 3 && filters.ndim() == 2, "x must be [rows, tokens, channels], the filters [taps, channels]");
  const int rows = x.shape(0), width = x.shape(1), channels = x.shape(2), taps = filters.shape(0);
  want(taps >= 1 && taps <= MK_CONV_TAPS && channels > 0, "a convolution has 1 to 64 taps, and channels");
  Given given;
  given.with(x, x.shape(), "x").with(gate_in, x.shape(), "gate_in").with(gate_out, x.shape(), "gate_out");
  given.with(before, {rows, taps - 1, channels}, "before").with(filters, {taps, channels}, "filters");
  given.with(bias, {channels}, "bias").with(counts, {rows}, "counts", mx::int32);
  mk_conv sizes{};
  sizes.rows = rows, sizes.width = width, sizes.channels = channels, sizes.taps = taps, sizes.silu = silu;
  auto fill = [](mk_conv& job, Inputs& in, Arrays& out) {
    job.x = in.tokens(), job.gate_in = in.tokens(), job.gate_out = in.tokens();
    job.before = in.all<float>(), job.filters = in.all<float>(), job.bias = in.all<float>(), job.counts = in.all<int>();
    job.y = out[0].data<float>(), job.after = out[1].data<float>();
  };
  return pair(scan<mk_conv>("ModelkitConv", sizes, fill, &mk_conv_rows, given, {x.shape(), before.shape()}));
}

Pair delta(const Array& mixed, const Array& decay, const Array& strength, const Array& rates, const Array& bias,
           const Array& before, const Maybe& counts, int key_heads, float most) {
  want(mixed.ndim() == 3 && decay.ndim() == 3 && before.ndim() == 4, "mixed and decay must have 3 dimensions, before 4");
  const int rows = mixed.shape(0), width = mixed.shape(1);
  const int heads = before.shape(1), key = before.shape(2), value = before.shape(3);
  want(key_heads > 0 && heads > 0 && heads % key_heads == 0, "the heads must be a multiple of the key heads");
  want(key > 0 && key <= MK_DELTA_KEYS && value > 0, "a key may have up to 2048 channels");
  const bool by_channel = decay.shape(2) != heads; /* with one channel to a key, both are the same */
  const int decays = by_channel ? heads * key : heads;
  Given given;
  given.with(mixed, {rows, width, 2 * key_heads * key + heads * value}, "mixed");
  given.with(decay, {rows, width, decays}, "decay");
  given.with(strength, {rows, width, heads}, "strength").with(rates, {heads}, "rates").with(bias, {decays}, "bias");
  given.with(before, {rows, heads, key, value}, "before").with(counts, {rows}, "counts", mx::int32);
  mk_delta sizes{};
  sizes.rows = rows, sizes.width = width, sizes.key_heads = key_heads, sizes.heads = heads;
  sizes.key_dim = key, sizes.value_dim = value, sizes.by_channel = by_channel, sizes.most = most;
  auto fill = [](mk_delta& job, Inputs& in, Arrays& out) {
    job.mixed = in.tokens(), job.decay = in.tokens(), job.strength = in.tokens();
    job.rates = in.all<float>(), job.bias = in.all<float>(), job.before = in.all<float>(), job.counts = in.all<int>();
    job.y = out[0].data<float>(), job.after = out[1].data<float>();
  };
  const mx::Shape answers{rows, width, heads * value};
  return pair(scan<mk_delta>("ModelkitDelta", sizes, fill, &mk_delta_rows, given, {answers, before.shape()}));
}

Pair selective_scan(const Array& x, const Array& steps, const Array& inputs, const Array& outputs, const Array& rates,
                    const Array& skip, const Array& before, const Maybe& counts) {
  want(x.ndim() == 3 && before.ndim() == 3, "x must be [rows, tokens, channels], before [rows, states, channels]");
  const int rows = x.shape(0), width = x.shape(1), channels = x.shape(2), states = before.shape(1);
  want(states > 0 && states <= MK_SELECTIVE_STATES && channels > 0, "a channel may have up to 256 states");
  Given given;
  given.with(x, x.shape(), "x").with(steps, x.shape(), "steps").with(inputs, {rows, width, states}, "inputs");
  given.with(outputs, {rows, width, states}, "outputs").with(rates, {states, channels}, "rates");
  given.with(skip, {channels}, "skip");
  given.with(before, {rows, states, channels}, "before").with(counts, {rows}, "counts", mx::int32);
  mk_selective sizes{};
  sizes.rows = rows, sizes.width = width, sizes.channels = channels, sizes.states = states;
  auto fill = [](mk_selective& job, Inputs& in, Arrays& out) {
    job.x = in.tokens(), job.steps = in.tokens(), job.inputs = in.tokens(), job.outputs = in.tokens();
    job.rates = in.all<float>(), job.skip = in.all<float>(), job.before = in.all<float>(), job.counts = in.all<int>();
    job.y = out[0].data<float>(), job.after = out[1].data<float>();
  };
  const auto shapes = {x.shape(), before.shape()};
  return pair(scan<mk_selective>("ModelkitSelectiveScan", sizes, fill, &mk_selective_rows, given, shapes));
}

Pair ssd(const Array& mixed, const Array& steps, const Array& rates, const Array& bias, const Array& skip,
         const Array& before, const Maybe& counts, int groups, std::pair<float, float> bounds) {
  want(mixed.ndim() == 3 && before.ndim() == 4, "mixed must have 3 dimensions, before 4");
  const int rows = mixed.shape(0), width = mixed.shape(1);
  const int heads = before.shape(1), states = before.shape(2), size = before.shape(3);
  want(groups > 0 && heads > 0 && heads % groups == 0, "the heads must be a multiple of the groups");
  Given given;
  given.with(mixed, {rows, width, heads * size + 2 * groups * states}, "mixed");
  given.with(steps, {rows, width, heads}, "steps");
  given.with(rates, {heads}, "rates").with(bias, {heads}, "bias").with(skip, {heads}, "skip");
  given.with(before, {rows, heads, states, size}, "before").with(counts, {rows}, "counts", mx::int32);
  mk_ssd sizes{};
  sizes.rows = rows, sizes.width = width, sizes.heads = heads, sizes.size = size;
  sizes.groups = groups, sizes.states = states;
  sizes.low = bounds.first, sizes.high = bounds.second;
  auto fill = [](mk_ssd& job, Inputs& in, Arrays& out) {
    job.mixed = in.tokens(), job.steps = in.tokens();
    job.rates = in.all<float>(), job.bias = in.all<float>(), job.skip = in.all<float>();
    job.before = in.all<float>(), job.counts = in.all<int>();
    job.y = out[0].data<float>(), job.after = out[1].data<float>();
  };
  const mx::Shape answers{rows, width, heads * size};
  return pair(scan<mk_ssd>("ModelkitSsd", sizes, fill, &mk_ssd_rows, given, {answers, before.shape()}));
}

Pair rg_lru(const Array& x, const Array& inputs, const Array& input_bias, const Array& keeps, const Array& keep_bias,
            const Array& rates, const Array& positions, const Array& before, const Maybe& counts) {
  want(x.ndim() == 3 && inputs.ndim() == 3, "x must be [rows, tokens, channels], gates [heads, block, block]");
  const int rows = x.shape(0), width = x.shape(1), heads = inputs.shape(0), block = inputs.shape(1);
  const mx::Shape matrices{heads, block, block}, vectors{heads, block};
  Given given;
  given.with(x, {rows, width, heads * block}, "x");
  given.with(inputs, matrices, "inputs").with(input_bias, vectors, "input_bias");
  given.with(keeps, matrices, "keeps").with(keep_bias, vectors, "keep_bias").with(rates, {heads * block}, "rates");
  given.with(positions, {rows, width}, "positions", mx::int32).with(before, {rows, heads * block}, "before");
  given.with(counts, {rows}, "counts", mx::int32);
  mk_lru sizes{};
  sizes.rows = rows, sizes.width = width, sizes.heads = heads, sizes.block = block;
  auto fill = [](mk_lru& job, Inputs& in, Arrays& out) {
    job.x = in.tokens(), job.inputs = in.all<float>(), job.input_bias = in.all<float>(), job.keeps = in.all<float>();
    job.keep_bias = in.all<float>(), job.rates = in.all<float>(), job.positions = in.all<int>();
    job.before = in.all<float>(), job.counts = in.all<int>();
    job.y = out[0].data<float>(), job.after = out[1].data<float>();
  };
  return pair(scan<mk_lru>("ModelkitRgLru", sizes, fill, &mk_lru_rows, given, {x.shape(), before.shape()}));
}

Array gated_norm(const Array& x, const Array& gate, const Array& weight, float eps, int groups, bool gate_first,
                 bool sigmoid) {
  want(x.ndim() == 3 && gate.ndim() == 3, "x and the gate must be [rows, tokens, channels]");
  const int wide = x.shape(2);
  want(groups > 0 && wide > 0 && wide % groups == 0, "the channels must divide into the groups");
  const bool shared = weight.size() != (size_t)wide;
  Given given;
  given.with(x, x.shape(), "x").with(gate, x.shape(), "the gate");
  given.with(weight, {shared ? wide / groups : wide}, "the weight");
  mk_gated_norm sizes{};
  sizes.eps = eps, sizes.rows = x.shape(0), sizes.tokens = x.shape(1), sizes.width = wide, sizes.groups = groups;
  sizes.shared = shared, sizes.gate_first = gate_first, sizes.sigmoid = sigmoid;
  auto fill = [](mk_gated_norm& job, Inputs& in, Arrays& out) {
    job.x = in.tokens(), job.gate = in.tokens(), job.weight = in.all<float>(), job.y = out[0].data<float>();
  };
  return scan<mk_gated_norm>("ModelkitGatedNorm", sizes, fill, &mk_gated_norm_rows, given, {x.shape()})[0];
}

void define(nb::module_& m) {
  m.def("conv", &conv, nb::arg("x"), nb::arg("gate_in").none(), nb::arg("gate_out").none(), nb::arg("before"),
        nb::arg("filters"), nb::arg("bias").none(), nb::arg("counts").none(), nb::arg("silu"));
  m.def("delta", &delta, nb::arg("mixed"), nb::arg("decay"), nb::arg("strength"), nb::arg("rates"), nb::arg("bias"),
        nb::arg("before"), nb::arg("counts").none(), nb::arg("key_heads"), nb::arg("most"));
  m.def("selective_scan", &selective_scan, nb::arg("x"), nb::arg("steps"), nb::arg("inputs"), nb::arg("outputs"),
        nb::arg("rates"), nb::arg("skip"), nb::arg("before"), nb::arg("counts").none());
  m.def("ssd", &ssd, nb::arg("mixed"), nb::arg("steps"), nb::arg("rates"), nb::arg("bias"), nb::arg("skip"),
        nb::arg("before"), nb::arg("counts").none(), nb::arg("groups"), nb::arg("bounds"));
  m.def("rg_lru", &rg_lru, nb::arg("x"), nb::arg("inputs"), nb::arg("input_bias"), nb::arg("keeps"),
        nb::arg("keep_bias"), nb::arg("rates"), nb::arg("positions"), nb::arg("before"), nb::arg("counts").none());
  m.def("gated_norm", &gated_norm, nb::arg("x"), nb::arg("gate"), nb::arg("weight"), nb::arg("eps"), nb::arg("groups"),
        nb::arg("gate_first"), nb::arg("sigmoid"));
}

const Topic topic(define);
}  // namespace
}  // namespace modelkit
