"""What names of tensors begin with in any wrapper, where they are for pictures and sound."""

from runtime.tensors.towers import USUAL, Towers

ALL_TOWERS = Towers(
    images=(
        *USUAL.images,
        *("image_tower.", "video_tower.", "high_res_vision_", "vqmodel.", "generation_"),
        *("vision_projection.", "visual_embeddings_table.", "image_newline", "vision_embed_tokens."),
        *("vit.", "vision_tokenizer.", "vision_backbone."),
    ),
    sound=(
        *USUAL.sound,
        "audio_tokenizer.",
        "acoustic_tokenizer_encoder.",
        "semantic_tokenizer_encoder.",
        "audio.",
        "encoder.",
        "talker.",
        "token2wav.",
        "code2wav.",
    ),
    projectors=(
        *USUAL.projectors,
        "connector.",
        "aligner.",
        "projector.",
        "mm_projector.",
        "mlp1.",
        "mlp_AR.",
        "vit_large_projector.",
        "patch_merge_mlp.",
        "layerwise_projectors.",
        "resampler_model.",
        "spatial_projectors.",
    ),
)
