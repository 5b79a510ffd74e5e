#include "common/model/layer.hpp"

namespace plumb {
namespace {

std::string mixer_name(const std::monostate&) { return "none"; }
std::string mixer_name(const SoftmaxAttention& attention) { return attention.window ? "sliding" : "full"; }
std::string mixer_name(const LatentAttention&) { return "mla"; }
std::string mixer_name(const GatedDelta&) { return "linear"; }
std::string mixer_name(const ChannelGatedDelta&) { return "kda"; }
std::string mixer_name(const Lightning&) { return "lightning"; }
std::string mixer_name(const Mamba&) { return "mamba"; }
std::string mixer_name(const Mamba2&) { return "mamba2"; }

std::string mlp_name(const std::monostate&) { return "none"; }
std::string mlp_name(const DenseMlp&) { return "dense"; }
std::string mlp_name(const MoeMlp&) { return "moe"; }

}  // namespace

std::string kind_name(const Layer& layer) {
  return std::visit([](const auto& mixer) { return mixer_name(mixer); }, layer.mixer) + "/" +
         std::visit([](const auto& mlp) { return mlp_name(mlp); }, layer.mlp);
}

}  // namespace plumb
